"""Layers on real Gloo ranks, for tests: forked, so that torch is imported once."""

import multiprocessing
import tempfile
import traceback
from pathlib import Path

from commbench.layers import load
from commbench.layers.layer import Place
from commbench.layers.wire import Tape, Wire


def on_ranks(ranks: int, function, *args) -> list:
    """[function(world, *args) of each rank]; a rank that raises fails the test with its traceback."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        results = fork.Queue()
        started = [
            fork.Process(target=_rank, args=(rank, ranks, f"{folder}/store", results, function, args), daemon=True)
            for rank in range(ranks)
        ]
        for process in started:
            process.start()
        found = dict(results.get(timeout=120) for _ in started)
        for process in started:
            process.join(10)
            process.kill()
    failed = [value for ok, value in found.values() if not ok]
    assert not failed, failed[0]
    return [found[rank][1] for rank in range(ranks)]


def _rank(rank, ranks, path, results, function, args):
    import torch
    import torch.distributed as dist

    from commbench.world.torch_world import TorchWorld

    try:
        torch.set_num_threads(1)
        world = TorchWorld("gloo", rank, ranks, dist.FileStore(str(Path(path)), ranks), 60)
        results.put((rank, (True, function(world, *args))))
        world.close()
    except BaseException:
        results.put((rank, (False, traceback.format_exc())))


def built_on(world, name: str, params: dict):
    """(Built, Tape, Layer, params, Place) of layer `name` over the whole world, its options overlaid by `params`."""
    record, tape = load(name), Tape()
    params = record.options | {"dtype": "float32"} | params
    problem = record.problem(params, world.size)
    assert problem is None, problem
    wires = {}
    for wire, groups in record.grids(params, world.size).items():
        group = world.split(groups)
        if group is not None:
            wires[wire] = Wire(group, tape, wire, next(members for members in groups if world.rank in members))
    place = Place(world.rank, world.size)
    return record.build(wires, params, place, "cpu"), tape, record, params, place


def tried(world, name: str, cases: list[dict]) -> list[dict]:
    """For each case: what was counted and what the formula says, wrong tensors, largest error, the rank's facts.

    The calls alone and the computation alone are run too; afterwards the layer must still be right.
    """
    rows = []
    for case in cases:
        built, tape, record, params, place = built_on(world, name, case)
        counted = dict(tape.record(built.step))
        replay = tape.replay()
        tape.stop()
        replay()
        tape.on = False
        built.step()
        tape.on = True
        for part in built.parts.values():
            part()
        wrong, error = built.check()
        wanted = {op: list(pair) for op, pair in record.traffic(params, place).items()}
        rows.append({"counted": counted, "wanted": wanted, "wrong": wrong, "error": error, "facts": built.facts()})
    return rows
