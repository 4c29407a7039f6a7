"""A script, a site and what the command line asks for, joined to the text that sbatch gets. Pure functions."""

import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from commbench.errors import UsageError
from commbench.slurm import SHIPPED
from commbench.slurm.site import Site, check_site

_DIRECTIVE = re.compile(r"#SBATCH --([a-z][a-z0-9-]*)(?:=(\S+))?\s*")
_MARK = "#SITE"


@dataclass(frozen=True)
class Wishes:
    """What the command line changes in a script. `nodes`: several for an array over node counts."""

    nodes: tuple[int, ...] = ()
    time: str | None = None
    suite: str | None = None
    backend: str | None = None
    launcher: str | None = None
    runs: str | None = None
    sbatch: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def shipped_scripts() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.sbatch"))


def read_script(name: str) -> str:
    """The text of a shipped script or of a file. Raises UsageError when there is none."""
    path = SHIPPED / f"{name}.sbatch" if name in shipped_scripts() else Path(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"there is no script {name!r} ({why}); shipped are {', '.join(shipped_scripts())}, or name a file"
        ) from None


def render(script: str, site: Site, wishes: Wishes = Wishes()) -> str:
    """The text of an sbatch script: the site's directives and settings in `script`, and how its ranks are started.

    Raises UsageError when `script` is none of this kind (see the shipped ones), or a wish does not fit it.
    """
    site = _as_wished(site, wishes)
    head, directives, before, after = _parts(script)
    if wishes.suite and not any(line.startswith("SUITE=") for line in before):
        raise UsageError("this script measures no suite, so --suite does not fit it; leave it out")
    lines = [*head, *_directives(directives, site, wishes), *before, *_settings(site, wishes), "", _ranks(site), *after]
    return "\n".join(lines) + "\n"


def _parts(script: str):
    """(lines above the directives, {directive: value}, lines before #SITE, lines after it)."""
    lines = script.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise UsageError("the script does not begin with #!/bin/bash, which sbatch wants")
    if lines.count(_MARK) != 1:
        raise UsageError(
            f"the script needs one line {_MARK}, where the site's settings go; it has {lines.count(_MARK)}"
        )
    directives = {}
    for line in lines:
        if line.startswith("#SBATCH"):
            match = _DIRECTIVE.fullmatch(line)
            if match is None:
                raise UsageError(f"{line!r} is not understood; write one long option a line: #SBATCH --name=value")
            directives[match[1]] = match[2]
    first = next((i for i, line in enumerate(lines) if line.startswith("#SBATCH")), 1)
    body = [line for line in lines[first:] if not line.startswith("#SBATCH")]
    mark = body.index(_MARK)
    return lines[:first], directives, body[:mark], body[mark + 1 :]


def _as_wished(site: Site, wishes: Wishes) -> Site:
    """`site` with the flags of the command line over it, checked again."""
    for option in wishes.sbatch:
        if not re.fullmatch(r"--[a-z][a-z0-9-]*(=[^\x00-\x1f]*)?", option):
            raise UsageError(f"--sbatch {option!r} is no long option; write --sbatch=--name=value")
    if wishes.time and not re.fullmatch(r"[\d:-]+", wishes.time):
        raise UsageError(f"--time {wishes.time!r} is no time; write minutes, hours:minutes:seconds or days-hours")
    changes = {key: value for key in ("backend", "launcher") if (value := getattr(wishes, key))}
    return check_site(site.model_dump() | changes, "the site with these flags")


def _directives(directives: dict, site: Site, wishes: Wishes) -> list[str]:
    """The #SBATCH lines: the script's, under the site's, under those of the command line."""
    tasks = 1 if site.launcher == "torchrun" else site.ranks
    wanted = {
        "partition": site.partition,
        "account": site.account,
        "ntasks-per-node": tasks,
        "cpus-per-task": site.ranks * site.cpus_per_rank // tasks,
        "gpus-per-node": site.gpus_per_node,
    }
    directives = directives | {name: value for name, value in wanted.items() if value}
    if site.exclusive:
        directives["exclusive"] = None
    if wishes.time:
        directives["time"] = wishes.time
    if wishes.nodes:
        if len(wishes.nodes) > 1 and "array" not in directives:
            raise UsageError("this script is no array over node counts; give --nodes one number")
        directives["nodes"] = max(wishes.nodes)
        if "array" in directives:
            limit = str(directives["array"]).partition("%")[2]
            directives["array"] = ",".join(map(str, wishes.nodes)) + (f"%{limit}" if limit else "")
    if wishes.runs:
        name = Path(str(directives.get("output", "%x-%j.out"))).name
        directives["output"] = wishes.runs.replace("%", "%%") + "/" + name
    for option in (*site.options.sbatch, *wishes.sbatch):
        name, _, value = option.removeprefix("--").partition("=")
        directives[name] = value or None
    signal = directives.get("signal")
    if signal and site.launcher == "mpirun" and ":" not in signal:
        directives["signal"] = f"B:{signal}"  # mpirun runs in the batch shell, and its daemons are no ranks
    return [f"#SBATCH --{name}" + ("" if value is None else f"={_quoted(value)}") for name, value in directives.items()]


def _quoted(value) -> str:
    """A value as sbatch reads it from a script: quotes only where they are needed."""
    text = str(value)
    return text if re.fullmatch(r"[^\s'\"\\#]*", text) else quote(text)


def _settings(site: Site, wishes: Wishes) -> list[str]:
    """The shell lines for this site."""
    environment = dict(site.environment)
    if site.nics:
        # The equals sign in the value means exactly these: mlx5_1 alone would mean mlx5_10 to mlx5_19 as well.
        environment.setdefault("NCCL_IB_HCA", "=" + ",".join(site.nics))
    names = [*environment, "MASTER_ADDR", "MASTER_PORT"]
    lines = ["# What the site and the command line say."]
    lines += [f"module load {quote(name)}" for name in site.modules]
    lines += [f". {quote(site.venv)}/bin/activate"] if site.venv else []
    lines += [line for text in site.setup for line in text.splitlines()]
    lines += [f"export {name}={quote(value)}" for name, value in environment.items()]
    lines += [f"SUITE={quote(wishes.suite)}"] if wishes.suite else []
    lines += [f"RUNS={quote(wishes.runs)}"] if wishes.runs else []
    lines += [
        f"RANKS_PER_NODE={site.ranks}",
        f"CPUS_PER_RANK={site.cpus_per_rank}",
        f"BACKEND={site.backend}",
        _array("IFACE", ["--iface", site.interface] if site.interface else []),
        _array("FLAGS", wishes.flags),
    ]
    if site.launcher == "mpirun":
        lines += [_array("EXPORT", [word for name in names for word in ("-x", name)])]
        lines += [_array("MPIRUN", site.options.mpirun)]
    else:
        lines += [_array("SRUN", [*([f"--mpi={site.mpi}"] if site.mpi else []), *site.options.srun])]
        lines += [_container(site, names)]
    if site.launcher == "torchrun":
        lines += [_array("TORCHRUN", site.options.torchrun)]
    return lines


def _array(name: str, words) -> str:
    return f"{name}=({' '.join(map(quote, words))})"


def _container(site: Site, names: list[str]) -> str:
    """pyxis' options. --container-env: what the site sets wins over what the image has set."""
    if site.container is None:
        return "CONTAINER=()"
    image = [f"--container-image={site.container.image}", f"--container-env={','.join(names)}"]
    mounts = "".join("," + quote(mount) for mount in site.container.mounts)
    words = [*map(quote, image), f'--container-mounts="$PWD:$PWD,$RUNS:$RUNS"{mounts}', '--container-workdir="$PWD"']
    return f"CONTAINER=({' '.join([*words, *map(quote, site.container.options)])})"


def _ranks(site: Site) -> str:
    """The shell functions that start ranks."""
    names = ["measure", site.launcher, *(["container"] if site.container else [])]
    return "\n".join((SHIPPED / "ranks" / f"{name}.sh").read_text() for name in names).rstrip() + "\n"
