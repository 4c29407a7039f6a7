"""Series whose parameters are known, for the tests of the models."""

import numpy as np

from commbench.models.equations import terms
from commbench.models.table import Table

SIZES = 2.0 ** np.arange(5, 34)
BASE, INTRA, INTER = 20.0, 1.0, 6.0
BETA = {1: 7e-5, 2: 3e-5, 4: 1.4e-5}  # by ranks per node
PLACES = [(g * n, n) for g in (1, 2, 4) for n in (2, 4, 8, 16)]


def series(time_of, places=PLACES, sizes=SIZES, noise=0.0, launches=1, launch_sd=0.0, op="all_reduce", seed=0) -> Table:
    """Times time_of(ranks, nodes, size_bytes) at each (ranks, nodes) and size, with log-normal noise per row and per
    launch."""
    rng = np.random.default_rng(seed)
    rows = [(r, n, s, one) for one in range(1, launches + 1) for r, n in places for s in sizes]
    ranks, nodes, size_bytes, launch = (np.array(column) for column in zip(*rows))
    log = np.log(time_of(ranks, nodes, size_bytes)) + noise * rng.standard_normal(len(rows))
    log += launch_sd * rng.standard_normal(launches)[launch - 1]
    return Table({"op": op, "algorithm": "library"}, ranks, nodes, size_bytes, np.exp(log), launch)


def ring_us(ranks, nodes, size_bytes):
    """A ring all_reduce with the parameters above."""
    _, columns = terms("all_reduce", "ring", ranks, nodes, size_bytes)
    beta = np.vectorize(BETA.get)(ranks // nodes)
    return columns[:, :3] @ [BASE, INTRA, INTER] + columns[:, 3] * beta


def gather_us(ranks, nodes, size_bytes, protocols=((10.0, 2.5, 4e-4), (30.0, 7.0, 4e-5))):
    """A ring all_gather that takes the faster of two protocols, each (base, per hop, per byte)."""
    moved = (ranks - 1) / ranks * size_bytes
    return np.min([base + hop * (ranks - 1) + beta * moved for base, hop, beta in protocols], axis=0)
