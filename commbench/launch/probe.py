"""A short launch before the timed one, only to see which algorithms the library chooses.

NCCL reads its debug level once per process, and printing costs time, so what it chose cannot be seen in the timed
launch itself. Rows say what was seen as "observed in a probe launch"; a probe that fails leaves "not observed".
"""

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from commbench.errors import PASS, CommbenchError
from commbench.launch import mpi_log, nccl_log
from commbench.launch.mpirun import find_mpirun, is_open_mpi, mpirun_command
from commbench.launch.spec import LaunchSpec
from commbench.results.plan import Plan, WorldKey, world_of

_NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,TUNING"}
_VISIBLE = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}


def probe(plan: Plan, world: WorldKey, site) -> dict:
    """{"algorithms": {...}, "library": {...}} as seen in a probe launch; empty where nothing can be seen."""
    try:
        if world.backend == "nccl":
            return _probe_nccl(plan, world, site)
        if world.backend == "mpi" and not world.forced and site.starts_mpi and is_open_mpi(find_mpirun()):
            return _probe_open_mpi(world.ranks)
    except (CommbenchError, OSError, subprocess.SubprocessError):
        pass  # the timed launch meets the same trouble and tells it
    return {}


def _probe_open_mpi(ranks: int) -> dict:
    command = mpirun_command(ranks, ["-c", "from mpi4py import MPI"], ["--mca", "coll_base_verbose", "20"])
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return {"algorithms": mpi_log.components(done.stderr + done.stdout)}


def _probe_nccl(plan: Plan, world: WorldKey, site) -> dict:
    steps = tuple(s for s in plan.steps if world_of(s) == world and s[0].op in _VISIBLE and s[0].status == "ok")
    if not steps:
        return {}
    settings = replace(plan.settings, warmup=0, iters=1, checks=0)
    with tempfile.TemporaryDirectory(prefix="commbench-probe-") as folder:
        dump, logs = os.path.join(folder, "topology.xml"), os.path.join(folder, "nccl.%h.%p.log")
        short = replace(plan, steps=steps, settings=settings, launches=1)
        short.save(Path(folder) / "plan.json")
        spec = LaunchSpec(
            run_dir=folder,
            journal=str(Path(folder) / "launch-001.jsonl"),
            backend="nccl",
            ranks=world.ranks,
            repetition=1,
            timeout_s=plan.settings.timeout_s,
            forced=dict(world.forced),
            environment={**_NCCL, "NCCL_DEBUG_FILE": logs, "NCCL_TOPO_DUMP_FILE": dump},
        )
        if site.launch(spec, lambda: None).exit_code != PASS:
            return {}
        text = "\n".join(path.read_text(errors="replace") for path in sorted(Path(folder).glob("nccl.*.log")))
        library = {**nccl_log.library_facts(text), **topology(Path(dump))}
    return {"algorithms": nccl_log.tuning(text, world.ranks), "library": library}


def topology(dump: Path) -> dict:
    """{"topology": {"gpus": 8, "nets": 16, "sm": ["90"], "nvlinks_per_gpu": 18}}: what NCCL's dump says of the node of
    the rank that wrote it; {} without one that can be read. Unverified until a GPU has run it.
    """
    from commbench.importers.found import Given
    from commbench.importers.read import read_file  # all readers of other tools, for this one file of NCCL alone

    try:
        return {"topology": read_file(dump, Given()).tests[0].facts} if dump.exists() else {}
    except (CommbenchError, IndexError):
        return {}
