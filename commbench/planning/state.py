"""Model state of training: bytes a parameter costs, and what ZeRO leaves of them on a rank."""

from dataclasses import dataclass

from commbench.errors import UsageError


@dataclass(frozen=True)
class Recipe:
    """Bytes a parameter: the weight computed with, its gradient, the master weight (0: none), the moments."""

    name: str
    weight: float
    gradient: float
    master: float
    moments: float
    source: str

    @property
    def optimizer(self) -> float:
        """What is touched at the end of a step only: master weight and moments. ZeRO's K."""
        return self.master + self.moments

    @property
    def total(self) -> float:
        return self.weight + self.gradient + self.optimizer


_ZERO = "arXiv 1910.02054 (ZeRO), 3.1: 2 + 2 + K, K = 12 for Adam"
_MEGATRON = "NVIDIA/Megatron-LM docs/user-guide/features/dist_optimizer.md: bf16 parameters, fp32 gradients, 6 + 12/d"
RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("adam", 2, 2, 4, 8, _ZERO),
        Recipe("adam-fp32-grads", 2, 4, 4, 8, _MEGATRON),
        Recipe("adam-fp32", 4, 4, 0, 8, "all in fp32: the weight is its own master"),
        Recipe("adam-bf16-moments", 2, 4, 4, 4, "arXiv 2412.19437 (DeepSeek-V3), 3.3: bf16 moments, fp32 the rest"),
        Recipe("adam-8bit", 2, 2, 4, 2, "arXiv 2110.02861 (8-bit optimizers): two moments of one byte"),
        Recipe("sgd-momentum", 2, 2, 4, 4, "one fp32 moment"),
        Recipe("sgd", 2, 2, 4, 0, "no moment"),
    )
}
ZERO_STAGES = (0, 1, 2, 3)


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. Raises UsageError naming those there are."""
    if name not in RECIPES:
        raise UsageError(f"there is no optimizer recipe {name!r}; recipes: {', '.join(RECIPES)}")
    return RECIPES[name]


def sharded_bytes(parameters: float, recipe: Recipe, zero: int, ranks: int) -> dict[str, float]:
    """Bytes on a rank of weights, gradients and optimizer when stage `zero` splits them over `ranks`.

    arXiv 1910.02054, figure 1 with K = 12: 16 P, 4 P + 12 P/N, 2 P + 14 P/N, 16 P/N. Raises UsageError for no stage.
    """
    if zero not in ZERO_STAGES:
        raise UsageError(f"ZeRO has the stages 0 to 3, not {zero}")
    if ranks < 1:
        raise UsageError(f"{ranks} data-parallel ranks are none; give 1 or more")
    return {
        "weights": parameters * recipe.weight / (ranks if zero >= 3 else 1),
        "gradients": parameters * recipe.gradient / (ranks if zero >= 2 else 1),
        "optimizer": parameters * recipe.optimizer / (ranks if zero >= 1 else 1),
    }


def state_bytes(parameters: float, recipe: Recipe, zero: int = 0, ranks: int = 1) -> float:
    """All model state on a rank, in bytes."""
    return sum(sharded_bytes(parameters, recipe, zero, ranks).values())


def offloaded_bytes(items: dict[str, float]) -> tuple[float, float]:
    """(on the device, on the host) of a rank's items, such as sharded_bytes, with ZeRO-Offload: gradients and optimizer
    move to the host, the rest stays.

    arXiv 2101.06840, 4: 2 P on the GPU and 14 P on the CPU with mixed-precision Adam.
    """
    host = items["gradients"] + items["optimizer"]
    return sum(items.values()) - host, host
