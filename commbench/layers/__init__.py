"""Layers of the parallel strategies, built to be timed: what they compute, what they send, what of it hides."""

from importlib import import_module

# A layer's module loads torch, so it is imported when its layer is first asked for.
_MODULES = {
    "context_parallel": "context_parallel",
    "data_parallel": "data_parallel",
    "host_optimizer": "host_optimizer",
    "kv_transfer": "kv_transfer",
    "offload": "offload",
    "tensor_parallel": "tensor_parallel",
    "expert_parallel": "expert_parallel",
    "pipeline": "pipeline",
}
NAMES = tuple(_MODULES)


def load(name: str):
    """The Layer (layers/layer.py) of this name, which must be one of NAMES."""
    return import_module(f"commbench.layers.{_MODULES[name]}").LAYER
