"""Flower's PyTorch quickstart with MPT; the lines marked "MPT" are what was added to it."""
