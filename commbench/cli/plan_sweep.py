"""commbench plan-sweep [RUN|CSV...] --op OP: what to measure so that a model over ranks can be fitted."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        "With runs or CSV files: what they leave open. With --ranks and --size: what such a sweep would leave open.\n"
        "examples:\n"
        "  commbench plan-sweep --op all_reduce --ranks 32,64 --per-node 8 --size 1M..1G\n"
        "  commbench plan-sweep runs/8gpus runs/16gpus --op all_reduce"
    )
    add = parser.add_argument
    add("sources", nargs="*", metavar="RUN|CSV", help="folders of runs, CSV files")
    add("--op", required=True, help="the operation, such as all_reduce")
    add("--algorithm", default="library", help="library (default), ring, tree, own:ring, ...")
    add("--ranks", help="planned rank counts: 64,512 or 8..4096, which doubles")
    add(
        "--per-node",
        help="ranks on a node: 8, or several: 4,8; fewer ranks lie on one node (default: as measured, or 1)",
    )
    add("--size", default="8..1G", help="planned sizes (default %(default)s)")


def main(args) -> int:
    from commbench.errors import UsageError

    machines = _measured(args)
    if not machines and not args.ranks:
        raise UsageError("nothing is planned; give --ranks, or runs that were measured")
    for machine, measured in (machines or {"": set()}).items():
        if len(machines) > 1:
            print(machine or "(no dataset)")
        _advise(args, measured | _planned(args, measured))
    return 0


def _advise(args, points: set[tuple[int, int, int]]) -> None:
    """Print what these points leave open, and what to add."""
    from commbench.cli.columns import aligned
    from commbench.models.identify import advise

    advice = advise(*zip(*sorted(points)), args.op, args.algorithm)
    worlds = sorted({point[:2] for point in points})
    print(f"{args.op}, {args.algorithm}: {len(points)} points, {len({p[2] for p in points})} sizes, on (ranks x nodes) "
          + ", ".join(f"{ranks} x {nodes}" for ranks, nodes in worlds))  # fmt: skip
    for sentence in advice.sentences:
        print(f"  {sentence}")
    added: dict[tuple[int, int], list[int]] = {}
    for ranks, nodes, size in advice.add:
        added.setdefault((ranks, nodes), []).append(size)
    if added:
        rows = [["add: ranks", "nodes", "sizes"]]
        rows += [[str(r), str(n), _sizes(sorted(sizes))] for (r, n), sizes in sorted(added.items())]
        print("\n".join(aligned(rows)))
        print("measure each in 5 launches: `commbench run ... --launches 5`")
    elif not advice.sentences:
        print("  this tells all parameters apart")


def _sizes(sizes: list[int]) -> str:
    """The sizes as --size takes them: a sweep where they double, else a list."""
    from commbench.units import format_size

    if len(sizes) > 2 and all(b == 2 * a for a, b in zip(sizes, sizes[1:])):
        return f"{format_size(sizes[0])}..{format_size(sizes[-1])}"
    return ",".join(format_size(size) if format_size(size)[0] != "~" else str(size) for size in sizes)


def _measured(args) -> dict[str, set[tuple[int, int, int]]]:
    """The (ranks, nodes, size) of the operation in the sources, by the machine they were measured on."""
    from commbench.errors import UsageError
    from commbench.models.table import read_series
    from commbench.results.nccl_tests import one_line

    if not args.sources:
        return {}
    tables = read_series(args.sources)
    mine = [t for t in tables if t.label["op"] == args.op and t.label.get("algorithm", "library") == args.algorithm]
    if not mine:
        there = sorted({f"{t.label['op']} {t.label.get('algorithm', 'library')}" for t in tables})
        raise UsageError(f"nothing of {args.op} {args.algorithm} was measured; there is {', '.join(there)}")
    machines: dict[str, set[tuple[int, int, int]]] = {}
    for table in mine:
        machine = ", ".join(one_line(table.label[key]) for key in ("dataset", "gpu", "backend") if key in table.label)
        rows = zip(table.ranks.tolist(), table.nodes.tolist(), table.size_bytes.tolist())
        machines.setdefault(machine, set()).update((r, n, int(size)) for r, n, size in rows)
    return machines


def _planned(args, measured) -> set[tuple[int, int, int]]:
    """The points that --ranks and --size plan, with as many ranks on a node as was measured unless --per-node says."""
    from commbench.cli.numbers import numbers
    from commbench.errors import UsageError

    if not args.ranks:
        return set()
    as_measured = max((ranks // nodes for ranks, nodes, _ in measured), default=1)
    worlds = set()
    for per_node in numbers("--per-node", args.per_node or str(as_measured)):
        for ranks in numbers("--ranks", args.ranks):
            if ranks > per_node and ranks % per_node:
                raise UsageError(f"--ranks {ranks} do not lie evenly on nodes of {per_node}; give a multiple")
            worlds.add((ranks, max(1, ranks // per_node)))
    return {(ranks, nodes, size) for ranks, nodes in worlds for size in numbers("--size", args.size)}
