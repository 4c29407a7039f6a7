"""Collective algorithms as data: proved, counted, simulated, executed and drawn from one and the same schedule.

So are schedules of pipeline parallelism, in stages*.py.
"""
