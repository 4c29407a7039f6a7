"""Who meets whom, and when: rounds of disjoint pairs, so that half as many pairs as there are nodes run at once."""

from collections import Counter

import numpy as np

MOST_IN_CIRCLE = 64  # nodes up to which every pair meets
SAMPLED_ROUNDS, AGAIN_ROUNDS = 16, 4  # of the sampled form: what a node costs does not grow with their number

Pair = tuple[int, int]


def circle(n: int) -> list[list[Pair]]:
    """All pairs of n ranks in n - 1 rounds (n for odd n) of disjoint pairs: the circle method of round-robin
    tournaments. Empty for fewer than two ranks."""
    seats = n + n % 2
    return [one for one in (_of_circle(n, seats, turn) for turn in range(seats - 1)) if one]


def _of_circle(n: int, seats: int, turn: int) -> list[Pair]:
    """One round: seat 0 stays, the others have moved on by `turn`; who sits opposite each other meets."""
    around = [0, *((seat - 1 - turn) % (seats - 1) + 1 for seat in range(1, seats))]
    met = zip(around[: seats // 2], reversed(around[seats // 2 :]))
    return sorted((min(a, b), max(a, b)) for a, b in met if max(a, b) < n)


def sampled(n: int, rounds: int, seed: int = 0) -> list[list[Pair]]:
    """`rounds` rounds of disjoint pairs of n, the partners drawn by `seed`; no pair meets twice.

    They are rounds of the circle method for nodes in a drawn order.
    """
    rng, seats = np.random.default_rng(seed), n + n % 2
    order = rng.permutation(n)
    turns = rng.choice(seats - 1, min(rounds, seats - 1), replace=False)
    drawn = (_of_circle(n, seats, int(turn)) for turn in turns)
    return [sorted(tuple(sorted((int(order[a]), int(order[b])))) for a, b in one) for one in drawn]


def first_rounds(n: int, seed: int = 0) -> list[list[Pair]]:
    """The rounds in which n nodes meet at first: every pair up to MOST_IN_CIRCLE nodes, drawn partners above."""
    return circle(n) if n <= MOST_IN_CIRCLE else sampled(n, SAMPLED_ROUNDS, seed)


def again(suspects: list[int], good: list[int], met: set[Pair], seed: int = 0) -> list[list[Pair]]:
    """AGAIN_ROUNDS rounds for suspects: each meets known-good partners, those that it has met (`met`: pairs with the
    smaller number first) only when there are no others, and in the last round, where there are several, a fellow
    suspect: two that are fast with each other share a fault that lies beyond them."""
    rng, times, rounds = np.random.default_rng(seed), Counter(met), []
    among_them = len(suspects) > 1
    for _ in range(AGAIN_ROUNDS - among_them):
        free, one = [int(node) for node in rng.permutation(good)], []
        for suspect in map(int, rng.permutation(suspects)[: len(free)]):
            pair = min((tuple(sorted((suspect, node))) for node in free), key=times.__getitem__)
            free.remove(sum(pair) - suspect)
            one.append(pair)
        times.update(one)
        rounds.append(sorted(one))
    if among_them:
        order = [int(node) for node in rng.permutation(suspects)]
        rounds.append(sorted(tuple(sorted(pair)) for pair in zip(order[::2], order[1::2])))
    return [one for one in rounds if one]
