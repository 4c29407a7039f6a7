"""Collective algorithms as data: proved, counted, simulated, executed and drawn from one and the same schedule."""
