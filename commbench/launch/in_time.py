"""What is asked of a rendezvous store ends in time, or this process does."""

import os
import sys
import threading
from contextlib import contextmanager

from commbench.errors import HANG


@contextmanager
def in_time(limit_s: float, server: str):
    """A block that asks the store at `server`. When it takes longer than limit_s, this process ends with exit code 4.

    torch's TCPStore waits without end for a server that the network does not reach any more, and nothing but the end of
    the process interrupts it. The ranks that it has forked end with it.
    """
    timer = threading.Timer(limit_s, _give_up, (limit_s, server))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # whoever forks next has no second thread


def _give_up(limit_s: float, server: str) -> None:
    print(f"commbench: rank 0's supervisor at {server} has not answered for {limit_s:g} s", file=sys.stderr, flush=True)
    os._exit(HANG)
