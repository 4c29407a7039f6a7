"""The command that measures again what a verdict is about."""

import re
import shlex

from commbench.acceptance.profile import Profile
from commbench.acceptance.rows import Row
from commbench.acceptance.rule import Rule
from commbench.results.nccl_tests import one_line
from commbench.units import format_size

_PAIR = re.compile(r"(?:pair|round \d+:|node round \d+:) ?(\d+,\d+)")
_SPLIT_OF = {"intra": "node", "inter": "rail", "mixed": None}


def command_of(row: Row, profile: Profile) -> str:
    """`commbench run ...` for the point of a row; the launcher before it (srun, mpirun, torchrun) is the user's."""
    point = row.sample.point
    words = ["commbench", "run", one_line(point.op), "--backend", one_line(point.backend)]
    if point.size_bytes:
        words += ["--size", _exact(point.params.get("requested_bytes", point.size_bytes))]
    split = _split(point.group)
    words += ["--split", split] if split else []
    words += ["--algorithm", one_line(point.choice)] if point.algorithm != "library" else []
    words += ["--dtype", one_line(point.dtype)] if point.dtype != "float32" else []
    words += ["--window", str(point.params["window"])] if "window" in point.params else []
    words += ["--root", str(point.root)] if point.root > 0 else []
    words += ["--in-place", "yes"] if point.in_place else []
    return shlex.join(words)


def command_of_rule(rule: Rule, profile: Profile) -> str:
    """`commbench run ...` for what a rule wants and the run lacks; "" where no operation is measured for it."""
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


def _split(group: str) -> str | None:
    """What `--split` takes for a group: all of its kind at the same time, or the one pair."""
    group = one_line(group)
    if group == "all":
        return None
    pair = _PAIR.fullmatch(group)
    if pair:
        return pair[1]
    kind, hash_sign, _ = group.partition(" #")
    return kind if hash_sign else group
