"""commbench run SUITE|FILE|OP: measure, live view, report."""

import argparse

from commbench.cli.op_names import OP_NAMES
from commbench.layers import NAMES as LAYER_NAMES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "operations: " + ", ".join(OP_NAMES) + "\n"
        "layers: " + ", ".join(LAYER_NAMES) + "\n\n"
        "Starts its own ranks on this machine; under torchrun, srun or mpirun it joins the ranks it finds.\n"
        "examples:\n"
        "  commbench run quick\n"
        "  commbench run all_reduce --backend gloo,mpi --ranks 4 --size 8..64M --dtype float32,bf16\n"
        "  commbench run all_gather --split 'MOD 8'\n"
        "  srun commbench run full --backend nccl\n"
        "  commbench run --resume runs/quick-20260101-120000"
    )
    add = parser.add_argument
    add("suite", nargs="?", help="suite (quick, full, links, ladder, moe, layers), TOML file, operation or layer")
    add(
        "-n",
        "--ranks",
        type=int,
        help="ranks to start here (default: GPUs, else cores); under a launcher: ranks expected",
    )
    add("--backend", help="gloo, nccl, mpi, or several with commas")
    add("--size", help="sizes: 1M, a list 8,64K,1M, or a sweep 8..64M (times 2), 8..64M*4, 1M..8M+1M")
    add(
        "--algorithm",
        help="library (default: it chooses), ring, tree, ring/ll128, ... of the library, own:ring, ... of commbench",
    )
    for name, what in (
        ("dtype", "element types, such as float32,bf16"),
        ("redop", "sum, prod, min, max, avg"),
        ("root", "root ranks"),
        ("timing", "isolated, streaming"),
        ("batch", "calls per sample of streaming"),
        ("window", "messages in flight of p2p_bw and p2p_bibw"),
    ):
        add(f"--{name}", help=what)
    add("--in-place", choices=["no", "yes", "both"], help="send and receive buffer the same")
    add("--split", action="append", help="groups at the same time: 'MOD 8', 'DIV 8', '0,1;2,3'; may be repeated")
    add("--set", action="append", metavar="OPTION=V[,V]", help="an option of a layer, such as tokens=512,1024")
    add("--degree", help="layers: groups of so many consecutive ranks, such as 2,4")
    add("--matrix", help="all_to_all_v: equal, ramp, or a CSV file of shares")
    add("--skew", help="all_to_all_v: what the busiest rank receives over the mean, such as 1,1.5,2,3,5")
    add("--routing", help="all_to_all_v: tokens to experts by uniform, zipf:1.2, log_normal:1, trace:FILE, ...")
    for name, what in (
        ("tokens", "of each rank, such as 4096, or one number for each rank"),
        ("experts", "experts of all ranks together, default 256"),
        ("top-k", "experts of a token, default 8"),
        ("placement", "linear, balanced, balanced:32 (with so many copies of hot experts)"),
        ("copies", "what moves: selection, rank (each token once), first_hop, second_hop"),
    ):
        add(f"--{name}", help=f"with --skew or --routing: {what}")
    add("--iters", type=int, help="exactly this many samples per point (default: until precise enough)")
    add("--warmup", type=int, help="calls before the first sample of each point")
    add("--target", type=float, help="stop when the median's 95%% interval is within this share, default 0.02")
    add("--budget", type=float, metavar="S", help="seconds of samples per point at most")
    add("--checks", type=int, help="checked calls per point; 0 leaves the data unchecked")
    add(
        "--timeout",
        type=float,
        metavar="S",
        help="longest that start-up, one call or one phase of a point may take, default 60",
    )
    add("--launches", type=int, help="repeat everything in this many fresh launches, each in an order of its own")
    add("--seed", type=int, help="number that the random order is drawn from; also shuffles a single launch")
    add("--profile", metavar="NAME|FILE", help="also measure what this profile judges (see `commbench accept`)")
    add("--refine", action="store_true", help="then measure more sizes around each break of a curve")
    add("--iface", help="network interface of Gloo and of NCCL's bootstrap, such as eth0")
    add("--out", help="folder of the run (default: runs/SUITE-DATE-TIME)")
    add("--resume", metavar="DIR", help="go on with a run: measure what it lacks")
    add("--no-report", action="store_true", help="do not write report.html at the end")


def main(args) -> int:
    from commbench.cli.run_here import run, run_here, set_environment
    from commbench.launch.identity import joined_world

    world = joined_world()
    if world is None:
        return run_here(args)
    set_environment(args.iface)
    from commbench.launch.joined import run_joined

    return run_joined(world, args.timeout, lambda node_of, site: run(args, node_of, site))
