"""Model shapes as data: one TOML file per published model, with its sources.

A shape is what communication, memory and arithmetic of a transformer follow from: its layers and their sizes. The
counts that follow are in counts.py.
"""

import re
from dataclasses import MISSING, dataclass
from pathlib import Path

from commbench.errors import UsageError
from commbench.toml_file import read_toml

SHIPPED = Path(__file__).parent
_MOST = 1_000_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_WORDS = {"biases": ("none", "qkv", "all")}


@dataclass(frozen=True)
class MLA:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): keys and values as one latent vector of
    `kv_lora` beside a shared rotary key of `rope_dim`; queries through a latent of `q_lora` (0: directly)."""

    q_lora: int
    kv_lora: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True)
class MoE:
    """Experts of the layers after the first `dense_layers`: a token takes `top_k` of `experts` and all
    `shared_experts`, each with `expert_hidden` inside. `node_limit`: most nodes that a token reaches, 0: any."""

    experts: int
    top_k: int
    expert_hidden: int
    shared_experts: int = 0
    dense_layers: int = 0
    node_limit: int = 0


@dataclass(frozen=True)
class Shape:
    """A decoder. hidden, ffn_hidden, head_dim: in elements. heads, kv_heads: query heads, and those of keys and values.

    gated: the FFN has three matrices (SwiGLU), else two. tied: the output layer is the embedding. positions: rows of a
    learned position embedding. norm_vectors: 2 where a norm has a bias beside its weight. parallel_block: attention
    and FFN read the same norm and are added once (PaLM). sequence: tokens a sequence was trained on.
    parameters_published: as its authors say it.
    """

    name: str
    source: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_hidden: int
    gated: bool
    vocab: int
    tied: bool
    sequence: int
    parameters_published: float
    parameters_source: str
    positions: int = 0
    biases: str = "none"
    norm_vectors: int = 1
    parallel_block: bool = False
    moe: MoE | None = None
    mla: MLA | None = None


def shape_names() -> list[str]:
    """Names of the shapes that come with commbench."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_shape(name_or_path: str) -> Shape:
    """The shape of that name, or of the TOML file at that path. Raises UsageError naming the file and the key."""
    path = SHIPPED / f"{name_or_path}.toml" if name_or_path in shape_names() else Path(name_or_path)
    missing = f"there is no model or model file {name_or_path!r}; models: {', '.join(shape_names())}"
    tables = read_toml(path, "model file", missing)
    file = f"model file {path}"
    for key, kind in (("moe", MoE), ("mla", MLA)):
        if key in tables:
            if not isinstance(tables[key], dict):
                raise UsageError(f"{file}: {key} is {tables[key]!r}; it must be a table, [{key}]")
            tables[key] = _record(tables[key], kind, file, f"{key}.")
    shape = _record(tables, Shape, file, "")
    _check(shape, file)
    return shape


def _check(shape: Shape, file: str) -> None:
    """UsageError where the numbers do not belong together."""
    if not _NAME.fullmatch(shape.name):
        raise UsageError(f"{file}: name {shape.name!r} is not made of letters, digits, dot, dash and underscore")
    if shape.heads % shape.kv_heads:
        raise UsageError(f"{file}: heads is {shape.heads}, which is no multiple of {shape.kv_heads} kv_heads")
    moe = shape.moe
    if moe and moe.top_k > moe.experts:
        raise UsageError(f"{file}: moe.top_k is {moe.top_k} of {moe.experts} experts; a token takes at most all")
    if moe and moe.dense_layers >= shape.layers:
        raise UsageError(f"{file}: moe.dense_layers is {moe.dense_layers} of {shape.layers} layers; none has experts")


def _record(table: dict, kind: type, file: str, prefix: str):
    """`kind` made of the keys of `table`, each known, there and of its field's type."""
    fields = kind.__dataclass_fields__
    for key in table:
        if key not in fields:
            raise UsageError(f"{file}: {prefix}{key} is not a known key; there are {', '.join(fields)}")
    for key, field in fields.items():
        if key not in table and field.default is MISSING:
            raise UsageError(f"{file}: {prefix}{key} is missing")
    return kind(**{key: _value(value, fields[key], f"{file}: {prefix}{key}") for key, value in table.items()})


def _value(value, field, where: str):
    kind = field.type
    if kind is bool and not isinstance(value, bool):
        raise UsageError(f"{where} is {value!r}; it must be true or false")
    if kind is str:
        words = _WORDS.get(field.name)
        if words and value not in words:
            raise UsageError(f"{where} is {value!r}; it must be one of {', '.join(words)}")
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{where} is {value!r}; it must be a text that is not empty")
    if kind is int:
        least = 0 if field.default == 0 or field.name == "q_lora" else 1
        if type(value) is not int or not least <= value <= _MOST:
            raise UsageError(f"{where} is {value!r}; it must be a whole number from {least} to {_MOST}")
    if kind is float:
        if type(value) not in (int, float) or not 0 < value < 1e18:
            raise UsageError(f"{where} is {value!r}; it must be a number above 0")
        return float(value)
    return value
