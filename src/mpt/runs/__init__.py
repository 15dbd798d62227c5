"""A run as a folder: its settings, the run itself, what it leaves, and all that is made of that later."""
