"""The life of one rank: form the world, say who is there, measure, leave."""

import ctypes
import gc
import json
import os
import signal
import traceback
from dataclasses import asdict, replace
from pathlib import Path

from commbench.errors import PASS, UNMEASURED, CommbenchError
from commbench.launch.forced import refusal
from commbench.launch.header import counters, header, rank_facts
from commbench.launch.roll_call import form_world
from commbench.launch.spec import LaunchSpec
from commbench.measure import Facts, measure
from commbench.results.journal import Journal
from commbench.results.plan import Settings, world_of
from commbench.results.records import SCHEMA
from commbench.results.store import load_run
from commbench.world.progress import DONE, EXCHANGE, FORMING, Progress

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """The kernel signals this process when its parent goes, so that a killed supervisor leaves no rank behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def rank_main(spec: LaunchSpec, rank: int, local_rank: int, listen_fd: int | None = None, device: int = 0) -> int:
    """Run one rank to its end and return its exit code; what went wrong stands in spec.error(local_rank).

    `local_rank` counts within this supervisor's ranks, `device` within the node's.
    """
    try:
        return _live(spec, rank, local_rank, listen_fd, device)
    except Exception as error:
        if not isinstance(error, CommbenchError):
            traceback.print_exc()
        message = str(error) if isinstance(error, CommbenchError) else f"{type(error).__name__}: {error}"
        spec.error(local_rank).write_text(json.dumps({"rank": rank, "message": message.strip()}))
        return error.exit_code if isinstance(error, CommbenchError) else UNMEASURED


def _live(spec: LaunchSpec, rank: int, local_rank: int, listen_fd: int | None, device: int) -> int:
    mark = Progress(spec.progress, spec.local_ranks).of(local_rank)
    mark.pid(os.getpid())
    mark.phase(FORMING)
    gc.disable()  # a collection in the middle of a sample is a delay no network made
    world, everyone = form_world(spec, rank, rank_facts(spec, rank, device), listen_fd)
    steps, journal, settings, head = (), None, None, {"oversubscribed": False, "ranks": []}
    if rank == 0:
        run = load_run(spec.run_dir)
        settings, steps = asdict(run.plan.settings), todo(run, spec, refusal(spec))
        journal = Journal(Path(spec.journal))
        head = header(spec, run.plan, everyone)
        journal.write(head)
    settings = Settings(**world.share(settings))
    binding_us = world.binding_us() if world.backend == "mpi" else None
    node_of = [place["node"] for place in head["ranks"]]
    facts = Facts(spec.repetition, head["oversubscribed"], binding_us, node_of, spec.seen.get("algorithms", {}))
    measure(world, steps, journal, settings, facts, mark)
    mark.phase(EXCHANGE)
    after = world.gather(counters(spec, device))
    if rank == 0:
        journal.write({"record": "counters", "schema": SCHEMA, "nodes": [node for node in after if node]})
    mark.phase(DONE)
    world.close()
    return PASS


def todo(run, spec: LaunchSpec, refused: str | None = None):
    """(number, points) of the plan's steps that this launch has to measure, in the order of its repetition.

    `refused`: why none of them can be measured; they become rows of status "skip".
    """
    done = run.finished(spec.repetition) | set(spec.given_up)
    for number in run.plan.order(spec.repetition):
        points = run.plan.steps[number]
        left = [point for point in points if point.id not in done]
        if left and world_of(points) == spec.world:
            yield number, [replace(p, status="skip", reason=refused) for p in left] if refused else left
