"""How many ranks, on how many nodes, a command line in a log has started."""

import re

_LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "srun", "aprun", "ibrun", "jsrun")
_RANKS = ("-n", "-np", "--np", "--n", "--ntasks", "-ntasks")
_PER_NODE = ("-npernode", "--npernode", "-ppn", "--ppn", "--ntasks-per-node", "--tasks-per-node")
_PPR = re.compile(r"ppr:(\d{1,5}):(?:node|l?\d?host)")
_GLUED = re.compile(r"(-n|-N)(\d{1,7})")


def launched(command: str) -> tuple[int, int]:
    """(ranks, nodes) that a command line with a launcher names before its program's own arguments; 0 where it does not
    tell. mpirun's -N is ranks per node, srun's is nodes."""
    if not any(name in command for name in ("mpi", "run", "exec")):
        return 0, 0
    words = command[:20_000].replace("=", " ").split()
    at = next((i for i, word in enumerate(words) if word.rpartition("/")[2].rpartition(">")[2] in _LAUNCHERS), None)
    if at is None:
        return 0, 0
    slurm = words[at].endswith(("srun", "jsrun"))
    ranks = nodes = per_node = 0
    options = iter(words[at + 1 :])
    for word in options:
        if "_perf" in word or word.rpartition("/")[2].startswith("osu_"):
            break  # what follows is the program's own
        if glued := _GLUED.fullmatch(word):
            word, value = glued.groups()
        elif word in (*_RANKS, *_PER_NODE, "-N", "--nodes"):
            value = next(options, "")
        elif ppr := _PPR.search(word):
            per_node = int(ppr[1])
            continue
        else:
            continue
        count = int(value) if value.isascii() and value.isdigit() and len(value) < 8 else 0
        if word in _RANKS and not ranks:
            ranks = count
        elif word == "--nodes" or (word == "-N" and slurm):
            nodes = nodes or count
        elif word in _PER_NODE or word == "-N":
            per_node = per_node or count
    if per_node and nodes and not ranks:
        ranks = nodes * per_node
    if per_node and ranks and not nodes:
        nodes = -(-ranks // per_node)
    return ranks, nodes
