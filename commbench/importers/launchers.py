"""How many ranks, on how many nodes, a command line in a log has started."""

import re

_LAUNCHERS = (
    "mpirun",
    "mpirun_rsh",
    "mpiexec",
    "orterun",
    "prterun",
    "prun",
    "srun",
    "aprun",
    "ibrun",
    "jsrun",
    "flux",
)
_VARIABLE = re.compile(r"\$\{?\w{0,40}(?:MPI|RUN|EXEC|LAUNCH|SUBMIT)\w{0,40}\}?", re.IGNORECASE)  # $MPIRUN, $SUBMIT_CMD
_HOST = re.compile(r"[A-Za-z][\w.-]{0,250}")
_RANKS = ("-n", "-np", "--np", "--n", "--ntasks", "-ntasks")
_PER_NODE = ("-npernode", "--npernode", "-ppn", "--ppn", "--ntasks-per-node", "--tasks-per-node")
_PPR = re.compile(r"ppr:(\d{1,5}):(?:node|l?\d?host)")
_GLUED = re.compile(r"(-n|-N)(\d{1,7})")


def _bare(word: str) -> str:
    """A program's name without its folder, a prompt, and the name of its MPI: mpirun.mpich, mpiexec.hydra."""
    name = word.rpartition("/")[2].rpartition(">")[2]
    return name.partition(".")[0] if name.startswith("mpi") else name


def _named_behind(words: list[str], ranks: int) -> int:
    """The nodes of mpirun_rsh -np 2 one two PROGRAM: a host for each rank; 0 where they are not all there."""
    at = next(i for i, word in enumerate(words) if word in _RANKS) + 2
    hosts = words[at : at + ranks]
    return len(set(hosts)) if len(hosts) == ranks and all(_HOST.fullmatch(host) for host in hosts) else 0


def launched(command: str) -> tuple[int, int]:
    """(ranks, nodes) that a command line with a launcher names before its program's own arguments; 0 where it does not
    tell. mpirun's -N is ranks per node, srun's is nodes."""
    if not any(name in command for name in ("mpi", "run", "exec", "flux", "$")):
        return 0, 0
    words = command[:20_000].replace("=", " ").split()
    at = next((i for i, word in enumerate(words) if _bare(word) in _LAUNCHERS or _VARIABLE.fullmatch(word)), None)
    if at is None:
        return 0, 0
    slurm = words[at].endswith(("srun", "jsrun", "flux"))
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
        elif word in _PER_NODE or (word == "-N" and words[at][0] != "$"):
            per_node = per_node or count
    if ranks and words[at].endswith("_rsh") and not any("hostfile" in word for word in words):
        nodes = _named_behind(words, ranks)
    if per_node and nodes and not ranks:
        ranks = nodes * per_node
    if per_node and ranks and not nodes:
        nodes = -(-ranks // per_node)
    return ranks, nodes
