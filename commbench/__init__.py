"""commbench: collective-communication benchmarks, from ranks to a report."""

__version__ = "0.1.0"
