"""Grids of runs, what executes them, and the tables and figures made of their results."""
