"""How context parallelism cuts a sequence: which positions a rank holds, and which pieces of attention it computes.

A causal mask over packed documents falls into rectangles, in which every query sees every key, and causal squares on
the diagonal. So no mask is ever written down, nothing masked is computed, and the load of a rank can be counted.
"""

from dataclasses import dataclass

import torch

Chunk = tuple[int, int]  # the positions from the first up to, not with, the second


@dataclass(frozen=True)
class Piece:
    """Rows of queries and of keys, as a rank holds them. causal: a square on the diagonal; else all see all."""

    q: slice
    k: slice
    causal: bool

    @property
    def pairs(self) -> int:
        """(query, key) pairs that are attended."""
        rows, keys = self.q.stop - self.q.start, self.k.stop - self.k.start
        return rows * (rows + 1) // 2 if self.causal else rows * keys


def chunks(rank: int, ranks: int, tokens: int, balance: bool) -> list[Chunk]:
    """The positions that `rank` holds: one chunk of `ranks`, or with balance two of 2 * `ranks`, paired first and last.

    Llama 3, arXiv 2407.21783, 3.3.2; ring-flash-attention calls it zigzag, Megatron-LM and torch head-tail.
    """
    size = tokens // (2 * ranks if balance else ranks)
    numbers = (rank, 2 * ranks - 1 - rank) if balance else (rank,)
    return [(number * size, (number + 1) * size) for number in numbers]


def document_bounds(tokens: int, documents: int, seed: int) -> list[int]:
    """The positions at which documents begin, and the end: `documents` of random lengths, at least 1 token each."""
    generator = torch.Generator().manual_seed(seed)
    inner = torch.randperm(tokens - 1, generator=generator)[: documents - 1] + 1 if tokens > 1 else []
    return [0, *sorted(int(position) for position in inner), tokens]


def pieces(queries: list[Chunk], keys: list[Chunk], bounds: list[int]) -> list[Piece]:
    """What the rows of `queries` attend to among those of `keys`, causally within each document; squares come first.

    Chunks are in order, and none of `queries` lies partly in one of `keys`.
    """
    found = []
    for begin, end in zip(bounds, bounds[1:]):
        q_parts, k_parts = _parts(queries, begin, end), _parts(keys, begin, end)
        if queries == keys and q_parts:  # in order, so causal by rows is causal by positions
            rows = slice(q_parts[0][2], q_parts[-1][2] + q_parts[-1][1] - q_parts[-1][0])
            found.append(Piece(rows, rows, True))
            continue
        for first, last, row in q_parts:
            rows = slice(row, row + last - first)
            count = sum(max(0, min(stop, first) - start) for start, stop, _ in k_parts)
            if count:
                earlier = slice(k_parts[0][2], k_parts[0][2] + count)
                if found and not found[-1].causal and found[-1].k == earlier and found[-1].q.stop == rows.start:
                    rows = slice(found.pop().q.start, rows.stop)
                found.append(Piece(rows, earlier, False))
            for start, stop, key_row in k_parts:
                if start <= first < stop:
                    own = key_row + first - start
                    found.append(Piece(slice(row, row + last - first), slice(own, own + last - first), True))
    return sorted(found, key=lambda piece: not piece.causal)


def _parts(held: list[Chunk], begin: int, end: int) -> list[tuple[int, int, int]]:
    """(first position, end, its row) of what is held of the positions from begin to end."""
    parts, row = [], 0
    for first, last in held:
        start, stop = max(first, begin), min(last, end)
        if start < stop:
            parts.append((start, stop, row + start - first))
        row += last - first
    return parts


def chunk_orders(ranks: int, balance: bool, device: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """(from rank after rank to order of position, and back) as orders for reordered(); None where they are alike."""
    if not balance:
        return None, None
    back = torch.tensor([number for rank in range(ranks) for number in (rank, 2 * ranks - 1 - rank)], device=device)
    return back.argsort(), back


def reordered(rows: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """`rows` with its chunks in `order`; as it is where that is None."""
    if order is None:
        return rows
    return rows.view(len(order), -1, *rows.shape[1:]).index_select(0, order).view(rows.shape)
