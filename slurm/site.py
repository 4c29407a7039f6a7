"""What belongs to a site, from a TOML file, so that no script needs editing."""

import difflib
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StringConstraints, ValidationError

from commbench.errors import UsageError
from commbench.slurm import SHIPPED
from commbench.toml_file import read_toml

SITES = SHIPPED / "sites"
LAUNCHERS = ("srun", "torchrun", "mpirun")

# One line of text: a line break in a value would be a line of its own in the script.
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$")]
Option = Annotated[str, StringConstraints(pattern=r"^-[^\x00-\x1f\x7f]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Value = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Options(_Strict):
    """More options for each program, as they are typed. sbatch's are long ones, --NAME or --NAME=VALUE."""

    sbatch: list[Option] = []
    srun: list[Text] = []
    torchrun: list[Text] = []
    mpirun: list[Text] = []


class Container(_Strict):
    """A pyxis container (enroot) that holds commbench. The folder of the runs and the working folder are mounted."""

    image: Text
    mounts: list[Text] = []
    options: list[Text] = []


class Site(_Strict):
    """One site file. `setup` are shell lines that stand in the script as they are; all else is quoted."""

    partition: Text | None = None
    account: Text | None = None
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    ranks_per_node: PositiveInt | None = None
    cpus_per_rank: PositiveInt = 1
    exclusive: bool = True
    nics: list[Text] = []
    interface: Text | None = None
    backend: Annotated[str, StringConstraints(pattern=r"^(nccl|gloo|mpi)(,(nccl|gloo|mpi))*$")] = "nccl"
    launcher: Literal[LAUNCHERS] = "srun"
    mpi: Text | None = None
    modules: list[Text] = []
    venv: Text | None = None
    setup: list[Annotated[str, StringConstraints(pattern=r"^[^\x00]+$")]] = []
    environment: dict[Variable, Value] = {}
    options: Options = Options()
    container: Container | None = None

    @property
    def ranks(self) -> int:
        """Ranks per node: one for each GPU unless the file says otherwise."""
        return self.ranks_per_node or self.gpus_per_node or 1


def shipped_sites() -> list[str]:
    return sorted(path.stem for path in SITES.glob("*.toml"))


def read_site(name: str) -> Site:
    """The site of a shipped file's name or of a path.

    Raises UsageError when there is no such file, it is no TOML, or a key is unknown or has a value that cannot be.
    """
    path = SITES / f"{name}.toml" if name in shipped_sites() else Path(name)
    missing = (
        f"there is no site file {name!r}; shipped are {', '.join(shipped_sites())}: copy one from {SITES}, "
        "and name it by its path"
    )
    tables = read_toml(path, "site file", missing)
    return check_site(tables, f"site file {path}")


def check_site(tables: dict, source: str) -> Site:
    """The site that `tables` describe. Raises UsageError with every error, one a line; `source` begins each."""
    try:
        site = Site.model_validate(tables)
    except ValidationError as error:
        told = [_sentence(item) for item in error.errors()]
        raise UsageError("\n".join(f"{source}: {line}" for line in told)) from None
    for wrong, sentence in _contradictions(site):
        if wrong:
            raise UsageError(f"{source}: {sentence}")
    return site


def _contradictions(site: Site):
    nccl = "nccl" in site.backend
    yield nccl and not site.gpus_per_node, 'backend "nccl" needs GPUs: set gpus_per_node, or backend to "gloo" or "mpi"'
    yield (
        nccl and site.ranks > site.gpus_per_node,
        f"ranks_per_node {site.ranks} is more than gpus_per_node {site.gpus_per_node}; each NCCL rank needs a GPU of "
        "its own",
    )
    yield (
        bool(site.container) and site.launcher == "mpirun",
        'launcher "mpirun" cannot start ranks in a container, srun can; set launcher to "srun" and mpi to "pmix"',
    )
    yield (
        "mpi" in site.backend and site.launcher == "torchrun",
        'launcher "torchrun" starts no MPI ranks; set it to "srun" with mpi = "pmix", or to "mpirun"',
    )
    short = next((o for o in site.options.sbatch if not re.match(r"--[a-z][a-z0-9-]*(=|$)", o)), None)
    yield short is not None, f'options.sbatch holds {short!r}; write long options, "--name" or "--name=value"'


def _sentence(item: dict) -> str:
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        table, key = item["loc"][:-1], str(item["loc"][-1])
        known = list({(): Site, ("options",): Options, ("container",): Container}[table].model_fields)
        near = difflib.get_close_matches(key, known, 1)
        return f"{where} is not a known key; " + (f"write {near[0]}" if near else f"there are {', '.join(known)}")
    if item["type"] == "missing":
        return f"{where} is missing"
    what = {
        "string_pattern_mismatch": "it has characters that do not belong there, or is empty",
        "literal_error": f"there are {', '.join(LAUNCHERS)}",
    }.get(item["type"], item["msg"][0].lower() + item["msg"][1:])
    return f"{where} is {item['input']!r}; {what}"
