"""Floating-point operations and bytes of attention, exact for every mask. A multiply and an add are two operations.

Three counts are in use, and each is right for its own question:
- executed: what a flash kernel does. Forward two matrix products per allowed pair (QK^T and PV); backward five (QK^T
  again, dV, dP, dQ, dK): 2.5 times the forward with equal head dims. flash-attention's tables print this.
- model: the same without the repeated QK^T, so backward is 2 times forward. MFU counts this.
- model, unmasked: as if every query saw every key. picotron, torchtitan and PaLM count this.
"""

from dataclasses import dataclass, field

from commbench.errors import UsageError
from commbench.kernels.masks import FULL, Mask, check, pairs

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Attention:
    """The sizes of one attention call: `heads` of queries share `kv_heads` of keys (dim wide) and values (dim_v)."""

    batch: int
    heads: int
    kv_heads: int
    sq: int
    sk: int
    dim: int
    dim_v: int
    dtype: str = "float32"
    mask: Mask = field(default=FULL)

    def __post_init__(self):
        """Raises UsageError for sizes that are none, and for heads that do not divide."""
        for name in ("batch", "heads", "kv_heads", "dim", "dim_v"):
            if getattr(self, name) < 1:
                raise UsageError(f"attention with {name} {getattr(self, name)}; it must be 1 or more")
        if self.heads % self.kv_heads:
            raise UsageError(f"{self.heads} query heads cannot share {self.kv_heads} key heads; they must divide")
        if self.dtype not in ITEMSIZE:
            raise UsageError(f"attention in {self.dtype!r} is not known; there are {', '.join(ITEMSIZE)}")
        check(self.mask, self.sq, self.sk)

    @property
    def pairs(self) -> int:
        """Allowed (query, key) pairs of all heads and sequences."""
        return self.batch * self.heads * pairs(self.mask, self.sq, self.sk)


def forward_flops(case: Attention, masked: bool = True) -> int:
    """Executed, and in the model, alike. `masked` False: as if every query saw every key."""
    counted = case.pairs if masked else case.batch * case.heads * case.sq * case.sk
    return 2 * counted * (case.dim + case.dim_v)


def backward_flops(case: Attention, masked: bool = True) -> int:
    """In the model: dV and dP (dim_v wide), dQ and dK (dim wide)."""
    return 2 * forward_flops(case, masked)


def executed_backward_flops(case: Attention) -> int:
    """With the QK^T that a flash backward computes again (Dao, arXiv 2307.08691, 2.2)."""
    return backward_flops(case) + 2 * case.pairs * case.dim


def tensor_bytes(case: Attention) -> dict[str, int]:
    """Bytes of q, k, v, o, and of lse, which is float32."""
    size, rows = ITEMSIZE[case.dtype], case.batch * case.heads * case.sq
    keys = case.batch * case.kv_heads * case.sk
    return {
        "q": rows * case.dim * size,
        "k": keys * case.dim * size,
        "v": keys * case.dim_v * size,
        "o": rows * case.dim_v * size,
        "lse": rows * 4,
    }


def forward_bytes(case: Attention) -> int:
    """The least traffic to memory: q, k, v read, o written (flash-attention's benchmark_attn.py counts the same, and
    leaves out lse, which is 2/dim_v of o in 16 bits)."""
    sizes = tensor_bytes(case)
    return sizes["q"] + sizes["k"] + sizes["v"] + sizes["o"]


def backward_bytes(case: Attention) -> int:
    """The least traffic: q, k, v, do read, dq, dk, dv written, as benchmark_attn.py counts; o and lse are left out."""
    sizes = tensor_bytes(case)
    return 2 * (sizes["q"] + sizes["k"] + sizes["v"]) + sizes["o"]


def score_bytes(case: Attention) -> int:
    """The score matrix that standard attention writes, in float32."""
    return case.batch * case.heads * case.sq * case.sk * 4
