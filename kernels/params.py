"""A case of attention as the parameters of a record, named as flash-attention's benchmark names them, and back."""

from commbench.errors import UsageError
from commbench.kernels.flops import Attention
from commbench.kernels.masks import Mask

_SIZES = {
    "batch_size": "batch", "nheads": "heads", "nheads_kv": "kv_heads", "seqlen": "sq", "seqlen_k": "sk",
    "headdim": "dim", "headdim_v": "dim_v",
}  # fmt: skip


def to_params(case: Attention) -> dict:
    """Every size, and the mask: causal, window (left, right; null: no limit), documents (their lengths)."""
    sizes = {name: getattr(case, field) for name, field in _SIZES.items()}
    mask = case.mask
    return sizes | {
        "causal": mask.right == 0 and mask.left is None,
        "window": [mask.left, mask.right],
        "documents": list(mask.documents),
    }


def from_params(params: dict, dtype: str) -> Attention | None:
    """The case of a record; None where a record (another tool's, or a damaged one) does not hold one."""
    sizes = {field: params.get(name) for name, field in _SIZES.items()}
    window, documents = params.get("window"), params.get("documents")
    if not isinstance(window, list | tuple) or len(window) != 2 or not isinstance(documents, list | tuple):
        return None
    limits = [x for x in window if x is not None]
    if not all(type(x) is int for x in (*sizes.values(), *limits, *documents)):
        return None
    try:
        return Attention(**sizes, dtype=dtype, mask=Mask(window[0], window[1], tuple(documents)))
    except UsageError:
        return None
