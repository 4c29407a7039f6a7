"""What a step runs on: the GPU, its links, the one fitted constant, and the assumptions, each named."""

from dataclasses import dataclass

from commbench.planning.gpus import Gpu
from commbench.planning.links import Links


@dataclass(frozen=True)
class Machine:
    """`efficiency`: share of the dense peak that matrix products and attention reach, with its interval; from
    `commbench plan --published`'s fit of the GPU kind, or stated. `efficiency_source` says which."""

    gpu: Gpu
    links: Links
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    efficiency_source: str


@dataclass(frozen=True)
class Assumptions:
    """What is assumed and neither measured nor fitted; the account prints each.

    memory_share: share of the datasheet's memory rate that norms and their like reach. memory_spread: its half-width.
    tp_overlap: each TP collective runs behind the matrix product beside it, but for one part of tp. dp_overlap: data
    parallel traffic hides behind the last backward and the first forward of a step. dualpipe_share: of the
    multiprocessors, those that move tokens under dualpipe (arXiv 2412.19437, 3.2.2: 20 of 132), hiding the all-to-alls.
    """

    memory_share: float = 0.85
    memory_spread: float = 0.1
    tp_overlap: bool = False
    dp_overlap: bool = True
    dualpipe_share: float = 20 / 132
