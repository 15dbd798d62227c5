"""Scripts and apps that tests start are no tests."""

collect_ignore = ["app", "simulated.py"]
