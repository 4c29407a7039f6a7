"""The command that measures again what a verdict is about."""

import re
import shlex
from dataclasses import replace

from commbench.acceptance.metrics import IMPORTED
from commbench.acceptance.profile import Profile
from commbench.acceptance.rows import Row
from commbench.acceptance.rule import Rule
from commbench.ops import OPS
from commbench.results.nccl_tests import one_line
from commbench.results.records import Point
from commbench.units import format_size

_PAIR = re.compile(r"(?:pair|(?:\w+ )?round \d+:) ?(\d+,\d+)")
_ROUND = re.compile(r"((?:\w+ )?)round \d+: ")
_GOOD = re.compile(r"first \d+ good nodes")
_SPELLED = 256  # ranks that a command spells out
_SPLIT_OF = {"intra": "node", "inter": "rail", "mixed": None}


def command_of(row: Row) -> str:
    """`commbench run ...` for the point of a row; the launcher before it (srun, mpirun, torchrun) is the user's."""
    return command_of_point(row.sample.point)


def command_of_pairs(point: Point) -> str:
    """What lets all pairs of a run meet again, both ways, as `point` of one of its rounds has."""
    of = _ROUND.match(point.group)
    split = f"{'rail ' if of and of[1] in ('rail ', 'again ') else of[1] if of else 'node '}pairs"
    return command_of_point(replace(point, group=split, root=0)) + " --root 0,1"


def command_of_point(point: Point) -> str:
    """`commbench run ...` for a point, or for all of its kind at the same time; "" where another tool measures it."""
    if point.op not in OPS:
        return ""
    words = ["commbench", "run", one_line(point.op), "--backend", one_line(point.backend)]
    if point.size_bytes:
        words += ["--size", _exact(point.params.get("requested_bytes", point.size_bytes))]
    split = _split(point)
    words += ["--split", split] if split else []
    words += ["--algorithm", one_line(point.choice)] if point.algorithm != "library" else []
    words += ["--dtype", one_line(point.dtype)] if point.dtype != "float32" else []
    words += ["--window", str(point.params["window"])] if "window" in point.params else []
    words += ["--root", str(point.root)] if point.root > 0 else []
    words += ["--in-place", "yes"] if point.in_place else []
    return shlex.join(words)


def command_of_rule(rule: Rule, profile: Profile) -> str:
    """`commbench run ...` for what a rule wants and the run lacks; "" where no operation is measured for it."""
    if rule.op in IMPORTED:
        return ""
    if rule.op is None:
        return "commbench run links" + (f" --backend {profile.backend}" if profile.backend else "")
    words = ["commbench", "run", rule.op]
    backend = rule.backend or profile.backend
    words += ["--backend", backend] if backend else []
    if isinstance(rule.size, int):
        words += ["--size", format_size(rule.size)]
    elif rule.size is not None:
        words += ["--size", f"{format_size(rule.size.from_)}..{format_size(rule.size.to)}"]
    split = _SPLIT_OF.get(rule.scope)
    words += ["--split", split] if split else []
    words += ["--algorithm", rule.algorithm] if rule.algorithm != "library" else []
    words += ["--dtype", rule.dtype] if rule.dtype not in (None, "float32") else []
    words += ["--window", str(rule.window)] if rule.window else []
    words += ["--in-place", "yes"] if rule.in_place else []
    return shlex.join(words)


def _exact(size_bytes: int) -> str:
    short = format_size(size_bytes)
    return str(size_bytes) if short.startswith("~") else short


def _split(point: Point) -> str | None:
    """What `--split` takes for a group: all of its kind at the same time, or the one pair."""
    group = one_line(point.group)
    if group == "all":
        return None
    pair = _PAIR.fullmatch(group)
    if pair:
        return pair[1]
    if _GOOD.fullmatch(group):  # a ladder had left nodes out
        return ",".join(map(str, point.members)) if point.ranks <= _SPELLED else group.replace(" good", "")
    kind, hash_sign, _ = group.partition(" #")
    return kind if hash_sign else group
