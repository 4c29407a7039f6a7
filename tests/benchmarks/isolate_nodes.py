"""Does the isolation find what was planted in a simulated cluster, and blame nothing else?

    python tests/benchmarks/isolate_nodes.py [--nodes 1024] [--rails 8] [--seeds 300] [--each 1] [--no-topology]

Each seed plants faults that take 15, 30 and 90 % of a rate (`--each` of each): a node, a NIC, one direction of a NIC, a
leaf switch or its uplinks. A meeting has 3 % noise, and 5 % of healthy pairs run at 0.7 of their rate, as flows do
that share a link by chance. 16 rounds of drawn partners, then 4 in which suspects meet others.

Bars: at least 99 % of the faults of 30 % and more are found within 20 rounds; in 99 % of the runs nothing healthy is blamed.
A fault is found when a culprit is exactly the part that was planted: its nodes, its rail, its direction.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from commbench.acceptance.culprits import Isolation, isolate
from commbench.acceptance.ports import SIDES, Meetings
from commbench.suite.rounds import again, first_rounds

LEAF = 32  # nodes below one switch
NOISE, COLLIDING, COLLIDED = 0.03, 0.05, 0.7
LOSSES = (0.15, 0.3, 0.9)
HEALTHY_GBps = 48.0


@dataclass(frozen=True)
class Fault:
    """What was planted. inner: the nodes of a leaf are slow with each other too."""

    kind: str
    loss: float
    nodes: tuple[int, ...]
    rails: tuple[int, ...]
    sides: tuple[int, ...] = (0, 1)
    inner: bool = True

    def cells(self, shape) -> np.ndarray:
        mask = np.zeros(shape, bool)
        mask[np.ix_(self.nodes, self.rails, self.sides)] = True
        return mask


def plant(rng, nodes: int, rails: int, losses) -> list[Fault]:
    """A fault for each loss, no two of them below one leaf switch: a smaller one within a larger one cannot be seen."""
    leaves = rng.permutation(nodes // LEAF)
    found = []
    for loss, leaf in zip(losses, leaves):
        kind = rng.choice(["node", "port", "side", "leaf"])
        of_leaf = tuple(range(leaf * LEAF, (leaf + 1) * LEAF))
        node, rail, everywhere = (int(rng.choice(of_leaf)),), (int(rng.integers(rails)),), tuple(range(rails))
        if kind == "leaf":
            found.append(Fault("leaf", loss, of_leaf, everywhere, inner=bool(rng.integers(2))))
        elif kind == "node":
            found.append(Fault("node", loss, node, everywhere))
        else:
            found.append(Fault(kind, loss, node, rail, (0, 1) if kind == "port" else (int(rng.integers(2)),)))
    return found


class Cluster:
    """Nodes that meet: rates of both directions on all rails, with noise, collisions and the planted faults.

    Whether a meeting collides is drawn anew each time; a pair that meets twice is rare among many nodes.
    """

    def __init__(self, nodes: int, rails: int, faults: list[Fault], rng, noise=NOISE, colliding=COLLIDING):
        self.hosts, self.rails, self.faults, self.rng = tuple(f"n{i}" for i in range(nodes)), rails, faults, rng
        self.noise, self.colliding = noise, colliding
        self.factor = np.ones((nodes, rails, 2))
        for fault in faults:
            if fault.inner:
                self.factor[fault.cells(self.factor.shape)] *= 1 - fault.loss
        self.leaf, self.uplink = np.arange(nodes) // LEAF, np.ones(nodes // LEAF + 1)
        for fault in faults:
            if not fault.inner:
                self.uplink[self.leaf[fault.nodes[0]]] = 1 - fault.loss
        self.src, self.dst, self.rate, self.rounds = [], [], [], 0

    def meet(self, rounds) -> None:
        for pairs in rounds:
            a, b = np.array(pairs).T
            source, target = np.concatenate((a, b)), np.concatenate((b, a))
            rail = np.repeat(np.arange(self.rails), source.size)
            source, target = np.tile(source, self.rails), np.tile(target, self.rails)
            rate = np.minimum(self.factor[source, rail, 0], self.factor[target, rail, 1])
            across = self.leaf[source] != self.leaf[target]
            up = np.minimum(self.uplink[self.leaf[source]], self.uplink[self.leaf[target]])
            rate = np.where(across, np.minimum(rate, up), rate)
            rate = np.where(self.rng.random(rate.size) < self.colliding, COLLIDED * rate, rate)
            self.src.append(source * self.rails + rail)
            self.dst.append(target * self.rails + rail)
            self.rate.append(HEALTHY_GBps * rate * np.exp(self.noise * self.rng.standard_normal(rate.size)))
            self.rounds += 1

    def meetings(self) -> Meetings:
        parts = (np.concatenate(parts) for parts in (self.src, self.dst, self.rate))
        return Meetings(self.hosts, self.rails, *parts)


def find(cluster: Cluster, switches, seed: int) -> Isolation:
    """The first rounds, then those of the suspects; the answer after all of them."""
    pairs = first_rounds(len(cluster.hosts), seed)
    cluster.meet(pairs)
    answer = isolate(cluster.meetings(), switches)
    accused = {node for part in answer.culprits + answer.suspects for node in part.nodes}
    if accused:
        good = [node for node in range(len(cluster.hosts)) if node not in accused]
        met = {pair for one in pairs for pair in one}
        cluster.meet(again(sorted(accused), good, met, seed))
        answer = isolate(cluster.meetings(), switches)
    return answer


def cells(part, shape) -> np.ndarray:
    """The ports that a culprit blames."""
    mask = np.zeros(shape, bool)
    rails = range(shape[1]) if part.rail is None else [part.rail]
    sides = (0, 1) if part.side is None else (SIDES.index(part.side),)
    mask[np.ix_(part.nodes, rails, sides)] = True
    return mask


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--rails", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--each", type=int, default=1, help="faults of each loss in a run")
    parser.add_argument("--no-topology", action="store_true", help="the switches are not known")
    given = parser.parse_args()
    switches = {
        f"leaf{i}": list(range(i * LEAF, (i + 1) * LEAF)) for i in range(given.nodes // LEAF) if not given.no_topology
    }
    planted, found, missed, clean, rounds, began = Counter(), Counter(), Counter(), 0, [], time.monotonic()
    for seed in range(given.seeds):
        rng = np.random.default_rng(seed)
        cluster = Cluster(given.nodes, given.rails, plant(rng, given.nodes, given.rails, LOSSES * given.each), rng)
        answer = find(cluster, switches, seed)
        blamed = [cells(part, cluster.factor.shape) for part in answer.culprits]
        guilty = np.zeros(cluster.factor.shape, bool)
        for fault in cluster.faults:
            mask = fault.cells(guilty.shape)
            guilty |= mask
            planted[fault.loss] += 1
            if any(np.array_equal(mask, one) for one in blamed):
                found[fault.loss] += 1
            else:
                missed[fault.loss, fault.kind] += 1
        healthy = [part for part, one in zip(answer.culprits, blamed) if (one & ~guilty).any()]
        clean += not healthy
        for part in healthy:
            print(f"seed {seed}: {part} was healthy; planted {cluster.faults}")
        rounds.append(cluster.rounds)
    told = "without topology" if given.no_topology else f"leaf switches of {LEAF} nodes known"
    print(
        f"{given.nodes} nodes of {given.rails} rail(s), {told}; {given.seeds} seeds, "
        f"{given.each} fault(s) of each loss, {max(rounds)} rounds at most, {time.monotonic() - began:.0f} s"
    )
    for loss in LOSSES:
        rate = found[loss] / planted[loss]
        answer = "reported" if loss < 0.3 else "pass" if rate >= 0.99 else "fail"
        print(f"{answer}: a loss of {loss:.0%} found {found[loss]} of {planted[loss]} times, {rate:.2%}")
    if missed:
        print("missed: " + ", ".join(f"{n} x {kind} of {loss:.0%}" for (loss, kind), n in sorted(missed.items())))
    share = clean / given.seeds
    print(
        f"{'pass' if share >= 0.99 else 'fail'}: nothing healthy blamed in {clean} of {given.seeds} runs, {share:.2%}"
    )
    severe = [found[loss] / planted[loss] >= 0.99 for loss in LOSSES if loss >= 0.3]
    return int(not (all(severe) and share >= 0.99 and max(rounds) <= 20))


if __name__ == "__main__":
    sys.exit(main())
