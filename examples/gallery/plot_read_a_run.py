"""
Read a run with pandas
======================

A placeholder until the example is written.
"""

import matplotlib.pyplot as plt

plt.plot([1, 2], [2, 1])
