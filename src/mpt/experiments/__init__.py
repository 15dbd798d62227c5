"""The paper's tables and figures as data, the sweep that computes their cells, and what is made of the results."""
