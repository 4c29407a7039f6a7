"""Who can compute attention here: a table. Each row gives a forward (and its backward by autograd), or says in words
why it is not here. Rows of other libraries are written from their documentation: unverified on GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from commbench.errors import UsageError
from commbench.kernels.flops import Attention
from commbench.kernels.masks import FULL


@dataclass(frozen=True)
class Backend:
    """setup(case, device): a function (q, k, v) -> o in `layout` ("bhsd": [B, H, S, D]), or the reason why there is
    none. materialises: it holds the score matrix. no_backward: why it has no backward; "" where it has one."""

    name: str
    what: str
    setup: Callable[[Attention, str], Callable | str]
    layout: str = "bhsd"
    materialises: bool = False
    no_backward: str = ""


def _reference(case: Attention, device: str):
    from commbench.kernels.attention_reference import attention

    return lambda q, k, v: attention(q, k, v, case.mask)[0]


def _tiled(case: Attention, device: str):
    from commbench.kernels.attention_tiled import attention

    return lambda q, k, v: attention(q, k, v, case.mask)[0]


def _triton(case: Attention, device: str):
    return _own("attention_triton", case, device)


def _hopper(case: Attention, device: str):
    import torch

    if device != "cpu" and torch.cuda.get_device_capability()[0] < 9:
        return "tensor descriptors (TMA) need compute capability 9.0 or more"
    return _own("attention_hopper", case, device)


def _own(module: str, case: Attention, device: str):
    from importlib import import_module

    if not find_spec("triton"):
        return "triton is not installed: pip install triton"
    if device == "cpu":
        return "no GPU; on a CPU only Triton's interpreter runs it, whose times mean nothing (the tests check it so)"
    kernel = import_module(f"commbench.kernels.{module}")
    plain = import_module("commbench.kernels.attention_triton")
    try:
        plain.refuse(case.dim, case.dim_v, case.dtype)
    except UsageError as error:
        return str(error)
    if module == "attention_hopper" and case.dim & (case.dim - 1):
        return f"head dim {case.dim} is no power of two; the plain Triton form takes it"
    return lambda q, k, v: kernel.attention(q, k, v, case.mask)[0]


def _sdpa(name: str):
    def setup(case: Attention, device: str):
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if device == "cpu" and name not in ("MATH", "FLASH_ATTENTION"):
            return "torch has this kernel for GPUs only"
        if case.dim != case.dim_v and name == "FLASH_ATTENTION":
            return f"takes no head dims {case.dim} and {case.dim_v} that differ"
        how = {"enable_gqa": case.heads != case.kv_heads}
        if case.mask.right == 0 and case.mask.left is None and not case.mask.documents and case.sq == case.sk:
            how["is_causal"] = True  # torch aligns it to the first key, which is the same only for equal lengths
        elif case.mask != FULL:
            if name in ("FLASH_ATTENTION", "CUDNN_ATTENTION") and device != "cpu":
                return f"takes no mask but causal with equal lengths, and this one is {case.mask}"
            from commbench.kernels.attention_reference import allowed

            how["attn_mask"] = allowed(case.mask, case.sq, case.sk, device)

        def forward(q, k, v):
            with sdpa_kernel(getattr(SDPBackend, name)):
                return F.scaled_dot_product_attention(q, k, v, **how)

        return forward

    return setup


def _flex(case: Attention, device: str):
    if device == "cpu":
        return "flex_attention has no backward on a CPU, and compiles for a minute"
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from commbench.kernels.attention_triton import device_bounds

    low, high, _, _ = device_bounds(case.mask, case.sq, case.sk, device)

    def seen(batch, head, query, key):
        return (key >= low[query]) & (key < high[query])

    blocks = None if case.mask == FULL else create_block_mask(seen, None, None, case.sq, case.sk, device=device)
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=blocks, enable_gqa=case.heads != case.kv_heads)


def _library(package: str, module: str, install: str, call: Callable, widest: int, same_dims: bool):
    """A library of its own with flash-attention's interface: [B, S, H, D], 16 bits, `causal` and `window_size`."""

    def setup(case: Attention, device: str):
        if not _found(module):
            return f"{package} is not installed: {install}"
        if device == "cpu":
            return f"{package} needs a GPU"
        if case.dtype == "float32":
            return f"{package} takes float16 and bfloat16, not float32"
        if max(case.dim, case.dim_v) > widest or (same_dims and case.dim != case.dim_v):
            alike = ", queries and values alike" if same_dims else ""
            return f"{package} takes head dims up to {widest}{alike}; these are {case.dim} and {case.dim_v}"
        if case.mask.documents:
            return f"{package} takes documents through its variable-length call, which is not in this table"
        return call(case, module)

    return setup


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that holds it
        return False


def _flash(case: Attention, module: str):
    from importlib import import_module

    attend = import_module(module).flash_attn_func
    absent = None if module == "flash_attn.cute" else -1  # how "no limit" is written
    causal, left = case.mask.right == 0, case.mask.left
    limits = (absent if left is None else left, absent if case.mask.right is None else case.mask.right)
    how = {"causal": causal} if left is None and case.mask.right in (None, 0) else {"window_size": limits}

    def forward(q, k, v):
        made = attend(q, k, v, **how)
        return made[0] if isinstance(made, tuple) else made  # FlashAttention-3 and -4 give lse too

    return forward


def _transformer_engine(case: Attention, module: str):
    from transformer_engine.pytorch import DotProductAttention

    kind = "no_mask" if case.mask.right is None else "causal_bottom_right"
    window = (-1 if case.mask.left is None else case.mask.left, -1 if case.mask.right is None else case.mask.right)
    layer = DotProductAttention(
        case.heads, (case.dim, case.dim_v), num_gqa_groups=case.kv_heads, attention_dropout=0.0, qkv_format="bshd",
        attn_mask_type=kind, window_size=window,
    )  # fmt: skip
    return lambda q, k, v: layer(q, k, v).unflatten(-1, (case.heads, case.dim_v))


def _flashinfer(case: Attention, module: str):
    import flashinfer
    import torch

    if case.mask.right not in (None, 0):
        return "FlashInfer takes no window to the right"
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(2**27, dtype=torch.uint8, device="cuda"))
    starts = [torch.arange(case.batch + 1, dtype=torch.int32, device="cuda") * n for n in (case.sq, case.sk)]
    wrapper.plan(
        *starts, case.heads, case.kv_heads, case.dim, head_dim_vo=case.dim_v, causal=case.mask.right == 0,
        window_left=-1 if case.mask.left is None else case.mask.left, q_data_type=getattr(torch, case.dtype),
    )  # fmt: skip

    def forward(q, k, v):
        return wrapper.run(*(x.flatten(0, 1) for x in (q, k, v))).unflatten(0, (case.batch, case.sq))

    return forward


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("reference", "attention as defined, scores in memory, float32", _reference, materialises=True),
        Backend("tiled", "our FlashAttention-1 form in plain torch", _tiled),
        Backend("triton", "our FlashAttention-2 form in Triton", _triton),
        Backend("triton-hopper", "the same through tensor descriptors, autotuned", _hopper),
        Backend("sdpa-math", "torch's, scores in memory", _sdpa("MATH"), materialises=True),
        Backend("sdpa-flash", "torch's flash kernel", _sdpa("FLASH_ATTENTION")),
        Backend("sdpa-efficient", "torch's memory-efficient kernel", _sdpa("EFFICIENT_ATTENTION")),
        Backend("sdpa-cudnn", "cuDNN's through torch", _sdpa("CUDNN_ATTENTION")),
        Backend("flex", "torch's flex_attention, compiled", _flex),
        Backend(
            "flash2", "FlashAttention-2",
            _library("flash-attn", "flash_attn.flash_attn_interface", "pip install flash-attn", _flash, 256, True),
            layout="bshd",
        ),
        Backend(
            "flash3", "FlashAttention-3, for Hopper",
            _library("flash-attn-3", "flash_attn_interface", "build hopper/ of flash-attention", _flash, 256, False),
            layout="bshd",
        ),
        Backend(
            "flash4", "FlashAttention-4, for Hopper and Blackwell",
            _library("flash-attn-4", "flash_attn.cute", "pip install flash-attn-4", _flash, 192, False),
            layout="bshd",
        ),
        Backend(
            "te", "TransformerEngine",
            _library("transformer-engine", "transformer_engine.pytorch", "pip install transformer-engine[pytorch]",
                     _transformer_engine, 256, False),
            layout="bshd",
        ),
        Backend(
            "flashinfer", "FlashInfer",
            _library("flashinfer", "flashinfer", "pip install flashinfer-python", _flashinfer, 256, False),
            layout="bshd", no_backward="FlashInfer is for inference: it has no backward",
        ),
    )
}  # fmt: skip
