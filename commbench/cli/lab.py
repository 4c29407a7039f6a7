"""commbench lab up|status|shape|cut|run|down: an emulated cluster on this machine, its links of set rate and delay."""

import argparse

_ACTIONS = {
    "up": "make nodes and links",
    "status": "what stands, and which links were changed",
    "shape": "set the rate of one link",
    "cut": "take one link down, or restore it",
    "run": "start a program as the lab's ranks",
    "down": "remove it, with all that runs in it",
}
_EXAMPLES = """examples (as root):
  commbench lab up --nodes 2 --ranks-per-node 2 --intra 800mbit --inter 100mbit
  commbench lab run -- commbench run p2p_latency --backend gloo --size 16M
  commbench lab shape node1 --by 0.1
  commbench lab cut node1 --direction out
  commbench lab cut node1 --restore
  commbench lab down
With --delay a switch of commbench's own sets the delay too and small messages are exact; without, large ones alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EXAMPLES
    actions = parser.add_subparsers(dest="action", metavar="|".join(_ACTIONS), required=True)
    made = {name: actions.add_parser(name, help=what) for name, what in _ACTIONS.items()}
    for action in made.values():
        action.add_argument("--name", default="lab", help="which lab, where several stand (default: lab)")
    add = made["up"].add_argument
    add("--nodes", type=int, default=2, help="default 2")
    add("--ranks-per-node", type=int, default=2, help="default 2")
    add("--intra", default="800mbit", help="rate of a rank's port, each way (default: %(default)s)")
    add("--inter", default="100mbit", help="rate of a node's uplink, which its ranks share (default: %(default)s)")
    add("--delay", help="one-way delay between nodes, such as 5ms or 0ms: the latency form")
    add("--intra-delay", help="one-way delay within a node (default: 0ms); with --delay only")
    add("--mtu", type=int, default=1500, help="bytes of a packet (default: 1500)")
    made["status"].add_argument("--json", action="store_true", help="one JSON object instead of words")
    for name in ("shape", "cut"):
        made[name].add_argument("link", help="node1 (its uplink) or rank3 (its port)")
        made[name].add_argument("--direction", choices=["out", "in", "both"], default="both", help="default both")
    how = made["shape"].add_mutually_exclusive_group(required=True)
    how.add_argument("--rate", help="such as 10mbit")
    how.add_argument("--by", type=float, help="this share of the rate it was made with, such as 0.1")
    how.add_argument("--restore", action="store_true", help="the rate it was made with")
    made["cut"].add_argument("--restore", action="store_true", help="put it back in place")
    add = made["run"].add_argument
    add(
        "--launcher",
        choices=["environment", "mpirun"],
        default="environment",
        help="who starts the ranks: RANK, WORLD_SIZE, ... set as torchrun does (default), or Open MPI's mpirun",
    )
    add("--realtime", action="store_true", help="ranks before all other programs of the machine (not with mpirun)")
    add("command", nargs="+", help="after --: the program and its arguments, such as commbench run all_reduce")


def main(args) -> int:
    return {"up": _up, "status": _status, "shape": _shape, "cut": _cut, "run": _run, "down": _down}[args.action](args)


def _up(args) -> int:
    import time

    from commbench.errors import UsageError
    from commbench.lab import build
    from commbench.lab.layout import Lab
    from commbench.lab.quantities import parse_delay, parse_rate

    if args.intra_delay and not args.delay:
        raise UsageError("--intra-delay is for the latency form: give --delay too, if need be --delay 0ms")
    began = time.monotonic()
    lab = Lab(
        args.name, args.nodes, args.ranks_per_node, parse_rate(args.intra), parse_rate(args.inter),
        parse_delay(args.delay) if args.delay else None,
        parse_delay(args.intra_delay or "0ms") if args.delay else None, args.mtu,
    )  # fmt: skip
    if build.up(lab):
        print(f"removed what was left of an earlier lab {lab.name}")
    print("\n".join(_lines(lab)))
    print(f"up in {time.monotonic() - began:.1f} s; next: commbench lab run{_named(lab)} -- commbench run all_reduce")
    return 0


def _named(lab) -> str:
    return "" if lab.name == "lab" else f" --name {lab.name}"


def _lines(lab) -> list[str]:
    """A lab in words, its changed links last."""
    from commbench.lab.quantities import format_rate, payload_GBps

    told = [f"lab {lab.name} ({lab.form} form): {lab.nodes} node(s) of {lab.ranks_per_node} rank(s)"]
    for what, there, bit_s, delay_us in (
        ("within a node", lab.ranks_per_node > 1, lab.intra_bit_s, lab.intra_delay_us),
        ("between nodes", lab.nodes > 1, lab.inter_bit_s, lab.delay_us),
    ):
        if there:
            delay = "" if delay_us is None else f", one-way delay {delay_us / 1e3:g} ms"
            payload = f"payload at most {payload_GBps(bit_s, lab.mtu):.4g} GB/s"
            told.append(f"{what} {format_rate(bit_s)}{delay}; {payload}")
    for link, state in lab.changes.items():
        told.append(f"{link}: " + ("cut" if state["cut"] else format_rate(state["bit_s"])))
    return told


def _status(args) -> int:
    import json

    from commbench.errors import PASS, UNMEASURED
    from commbench.lab import build, state
    from commbench.lab.namespaces import processes_in

    state.need_root()
    found = state.load(args.name)
    if found is None:
        print(json.dumps({"name": args.name, "stands": False}) if args.json else f"there is no lab {args.name}")
        others = [name for name in state.names() if name != args.name]
        if others and not args.json:
            print(f"there are {', '.join(others)}: give one by --name")
        return UNMEASURED
    lab, complete = found
    lacking = build.broken(lab) + ([] if complete else ["the end of its making"])
    running = len(processes_in(lab.namespaces()))
    if args.json:
        told = {"stands": not lacking, "lacking": lacking, "processes": running, "form": lab.form, **lab.to_json()}
        print(json.dumps(told | {"ranks": [vars(rank) for rank in lab.ranks()]}))
    else:
        print("\n".join(_lines(lab)))
        for rank in lab.ranks():
            print(f"rank {rank.rank} on {rank.host}: {rank.address}, namespace {rank.namespace}")
        print(f"{running} process(es) in it")
        if lacking:
            print(f"broken, it lacks {', '.join(lacking)}: commbench lab down{_named(lab)}")
    return UNMEASURED if lacking else PASS


def _directions(args) -> tuple[str, ...]:
    return ("out", "in") if args.direction == "both" else (args.direction,)


def _shape(args) -> int:
    from commbench.errors import UsageError
    from commbench.lab import build
    from commbench.lab.layout import check_link
    from commbench.lab.quantities import format_rate, parse_rate
    from commbench.lab.state import standing

    lab = standing(args.name)
    bit_s = lab.set_bit_s(check_link(lab, args.link))
    if args.rate:
        bit_s = parse_rate(args.rate)
    elif args.by is not None:
        if not 0 < args.by <= 100:
            raise UsageError(f"--by {args.by:g}: a share is above 0, such as 0.1 for a tenth")
        bit_s = parse_rate(f"{bit_s * args.by:.0f}bit")
    lab = build.change(args.name, args.link, _directions(args), bit_s=bit_s)
    print(f"{args.link} of lab {lab.name} has {format_rate(bit_s)} now ({args.direction})")
    return 0


def _cut(args) -> int:
    from commbench.lab import build

    lab = build.change(args.name, args.link, _directions(args), cut=not args.restore)
    print(f"{args.link} of lab {lab.name} is {'back' if args.restore else 'cut'} ({args.direction})")
    return 0


def _run(args) -> int:
    from commbench.errors import MeasureError, UsageError
    from commbench.lab import build, mpi, ranks
    from commbench.lab.state import standing

    lab = standing(args.name)
    if lacking := build.broken(lab):
        raise MeasureError(f"lab {lab.name} is broken, it lacks {lacking[0]}: `commbench lab up` builds it anew")
    if args.launcher == "mpirun":
        if args.realtime:
            raise UsageError("--realtime is not for mpirun: MPI's ranks wait by polling and would take all cores")
        return mpi.run(lab, args.command)
    return ranks.run(lab, args.command, args.realtime)


def _down(args) -> int:
    import time

    from commbench.lab import build

    began = time.monotonic()
    was = build.down(args.name)
    print(f"lab {args.name} is gone, in {time.monotonic() - began:.1f} s" if was else f"there is no lab {args.name}")
    return 0
