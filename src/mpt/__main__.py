"""`python -m mpt` is `mpt`."""

from mpt.cli import app

if __name__ == "__main__":
    app()
