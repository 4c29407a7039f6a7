"""What layers send by over MPI: memory lives until a call that was started has been waited for."""

import subprocess
import sys

import pytest
from runs import clean_environment

pytest.importorskip("mpi4py")
CODE = """
import torch
from commbench.world.mpi_world import MpiGroup
from mpi4py import MPI

start = MpiGroup(MPI.COMM_SELF).start()
calls = {
    "all_reduce": lambda a, b: start.all_reduce(a),
    "all_gather": lambda a, b: start.all_gather(b, a),
    "reduce_scatter": lambda a, b: start.reduce_scatter(b, a),
    "all_to_all": lambda a, b: start.all_to_all(b, a, [8], [8]),
    "exchange": lambda a, b: start.exchange([b, a], [0], [0]),
}
for name, call in calls.items():
    given = torch.zeros(8)
    memory = given.untyped_storage()._weak_ref()
    work = call(given, torch.zeros(8))
    del given
    assert not torch.UntypedStorage._expired(memory), name
    work.wait()
    torch.UntypedStorage._free_weak_ref(memory)
print("kept")
"""


def test_tensors_live_until_their_call_has_been_waited_for():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=clean_environment())
    assert done.stdout == "kept\n", done.stderr
