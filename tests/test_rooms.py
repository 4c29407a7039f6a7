"""The five floors of the house: a room imports only from below, and a rank process loads only what it needs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from runs import clean_environment

import commbench

ROOT = Path(commbench.__file__).parent
FLOORS = {
    "errors": 0, "units": 0, "toml_file": 0, "__init__": 0,
    "world": 1, "timing": 1, "routing": 1,
    "fabrics": 1, "shapes": 1, "kernels": 1,
    "ops": 2, "results": 2, "schedules": 2, "importers": 2,
    "suite": 3, "models": 3, "layers": 3,
    "measure": 4, "measure_layer": 4, "launch": 4, "lab": 4, "acceptance": 4, "slurm": 4, "reports": 4, "planning": 4,
    "cli": 5, "__main__": 5,
}  # fmt: skip
RANK_MAY_LOAD = {"torch", "numpy", "mpi4py", "pynvml"}
RANK_ROOMS = {
    "world",
    "timing",
    "routing",
    "layers",
    "ops",
    "results",
    "schedules",
    "measure",
    "measure_layer",
    "launch",
    "errors",
    "units",
}


def _files():
    yield from ((path.relative_to(ROOT).parts[0].removesuffix(".py"), path) for path in ROOT.rglob("*.py"))
    yield from ((room, path) for room in ("kernels", "reports", "slurm") for path in (ROOT.parent / room).glob("*.py"))


def _imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                [f"commbench.{name.name}" for name in node.names] if node.module == "commbench" else [node.module]
            )


@pytest.mark.parametrize("room, path", [pytest.param(*f, id=str(f[1].name)) for f in _files()])
def test_a_room_imports_only_from_below(room, path):
    for name in _imports(path):
        parts = name.split(".")
        if parts[0] == "commbench" and len(parts) > 1 and parts[1] in FLOORS:
            assert FLOORS[parts[1]] <= FLOORS[room], f"{path} imports {name}"
        elif room in RANK_ROOMS and parts[0] not in sys.stdlib_module_names and parts[0] != "commbench":
            assert parts[0] in RANK_MAY_LOAD, (
                f"{path} imports {name}, which thousands of ranks would read from one disk"
            )


@pytest.mark.parametrize("module, heavy", [("commbench.launch.mpi_rank", {"torch"}), ("commbench.launch.forks", set())])
def test_a_rank_process_loads_only_torch_and_numpy(module, heavy):
    code = f"import sys, {module}; print(*sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment(), check=True
    )
    loaded = set(done.stdout.split())
    assert not loaded & ({"pydantic", "pandas", "plotly", "rich", "scipy", "jinja2"} | heavy)
