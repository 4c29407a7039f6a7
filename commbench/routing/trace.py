"""Recorded routing: the expert ids of real tokens, from a CSV file or an npz archive."""

import csv
import zipfile
from pathlib import Path

import numpy as np

from commbench.errors import UsageError
from commbench.routing.routing import Routing, check_experts, random_weights, rng_of, tokens_of

_MOST_BYTES = 4 << 30  # of an array in an archive: 128 million tokens of top-8


def trace(tokens_per_rank, ranks: int, experts: int, top_k: int, seed: int, path: str) -> Routing:
    """The first tokens of a file, dealt to the ranks in parts of `tokens_per_rank`; an id of -1 is a masked selection.

    CSV: a token a line, `top_k` ids. npz: an integer array `ids` (tokens, top_k), and perhaps `weights` of its shape.
    Raises UsageError naming the file for anything else, for ids that are no expert, for an expert that a token chose
    twice, and where it holds fewer tokens than asked for.
    """
    check_experts(experts, top_k)
    ids, weights = (_npz if str(path).lower().endswith(".npz") else _csv)(Path(path))
    if ids.ndim != 2 or ids.shape[1] != top_k:
        raise UsageError(f"trace {path} is of shape {ids.shape}; top-{top_k} needs (tokens, {top_k})")
    _check_ids(ids, experts, path)
    tokens = tokens_of(tokens_per_rank, ranks)
    if sum(tokens) > len(ids):
        raise UsageError(
            f"trace {path} holds {len(ids)} tokens, {sum(tokens)} are needed for {ranks} ranks; use fewer a rank"
        )
    cuts = np.cumsum(tokens)
    own = [part.astype(np.int32) for part in np.split(ids, cuts)[:ranks]]
    if weights is None:
        of_own = [random_weights(rng_of(seed, rank), part) for rank, part in enumerate(own)]
    else:
        of_own = [np.where(i < 0, 0, w).astype(np.float32) for i, w in zip(own, np.split(weights, cuts))]
    return Routing(experts, top_k, tuple(own), tuple(of_own))


def _check_ids(ids: np.ndarray, experts: int, path) -> None:
    outside = np.argwhere((ids < -1) | (ids >= experts))
    if len(outside):
        token, place = outside[0]
        raise UsageError(
            f"trace {path}, token {token + 1}: {ids[token, place]} is no expert; ids are 0 to {experts - 1}, or -1"
        )
    in_order = np.sort(ids, axis=1)
    twice = np.argwhere((in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] >= 0))
    if len(twice):
        token, place = twice[0]
        raise UsageError(f"trace {path}, token {token + 1}: expert {in_order[token, place]} stands there twice")


def _csv(path: Path) -> tuple[np.ndarray, None]:
    rows = []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row:
                    continue
                try:
                    rows.append([int(cell) for cell in row])
                except ValueError:
                    if number == 1:  # a line of column names
                        continue
                    raise UsageError(f"trace {path}, line {number}: {','.join(row)[:80]!r} are no expert ids") from None
                if len(row) != len(rows[0]):
                    raise UsageError(
                        f"trace {path}, line {number} has {len(row)} ids, the lines before it {len(rows[0])}"
                    )
        if not rows:
            raise UsageError(f"trace {path} holds no tokens; it needs a line of expert ids for each")
        return np.array(rows, np.int64), None
    except (OSError, csv.Error, ValueError, OverflowError) as error:
        raise UsageError(f"trace {path} cannot be read: {error}") from None


def _npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    try:
        with zipfile.ZipFile(path) as archive:
            largest = max((item.file_size for item in archive.infolist()), default=0)
        if largest > _MOST_BYTES:
            raise UsageError(f"trace {path} holds an array of {largest} bytes; {_MOST_BYTES} are the most")
        with np.load(path, allow_pickle=False) as arrays:
            if "ids" not in arrays:
                raise UsageError(f"trace {path} has no array `ids`; it holds {', '.join(arrays) or 'nothing'}")
            ids, weights = arrays["ids"], arrays["weights"] if "weights" in arrays else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise UsageError(f"trace {path} cannot be read as npz: {error}") from None
    if ids.dtype.kind not in "iu":
        raise UsageError(f"trace {path}: `ids` are {ids.dtype}, expert ids are whole numbers")
    if weights is not None and (weights.shape != ids.shape or weights.dtype.kind != "f"):
        raise UsageError(f"trace {path}: `weights` are {weights.dtype} {weights.shape}, needed are floats {ids.shape}")
    if weights is not None and not np.isfinite(weights).all():
        raise UsageError(f"trace {path}: `weights` hold values that are no finite number")
    return ids, weights
