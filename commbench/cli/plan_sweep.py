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
    add("--per-node", default="1", help="ranks on a node: 8, or several: 4,8; fewer ranks lie on one node (default 1)")
    add("--size", default="8..1G", help="planned sizes (default %(default)s)")


def main(args) -> int:
    from commbench.cli.columns import aligned
    from commbench.errors import UsageError
    from commbench.models.identify import advise

    points = _measured(args) | _planned(args)
    if not points:
        raise UsageError("nothing is planned; give --ranks, or runs that were measured")
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
    return 0


def _sizes(sizes: list[int]) -> str:
    """The sizes as --size takes them: a sweep where they double, else a list."""
    from commbench.units import format_size

    if len(sizes) > 2 and all(b == 2 * a for a, b in zip(sizes, sizes[1:])):
        return f"{format_size(sizes[0])}..{format_size(sizes[-1])}"
    return ",".join(format_size(size) if format_size(size)[0] != "~" else str(size) for size in sizes)


def _measured(args) -> set[tuple[int, int, int]]:
    """The (ranks, nodes, size) of the operation in the sources."""
    from commbench.errors import UsageError
    from commbench.models.table import read_series

    if not args.sources:
        return set()
    tables = read_series(args.sources)
    mine = [t for t in tables if t.label["op"] == args.op and t.label.get("algorithm", "library") == args.algorithm]
    if not mine:
        there = sorted({f"{t.label['op']} {t.label.get('algorithm', 'library')}" for t in tables})
        raise UsageError(f"nothing of {args.op} {args.algorithm} was measured; there is {', '.join(there)}")
    return {
        (int(ranks), int(nodes), int(size))
        for table in mine
        for ranks, nodes, size in zip(table.ranks, table.nodes, table.size_bytes)
    }


def _planned(args) -> set[tuple[int, int, int]]:
    from commbench.cli.numbers import numbers
    from commbench.errors import UsageError

    if not args.ranks:
        return set()
    worlds = set()
    for per_node in numbers("--per-node", args.per_node):
        for ranks in numbers("--ranks", args.ranks):
            if ranks > per_node and ranks % per_node:
                raise UsageError(f"--ranks {ranks} do not lie evenly on nodes of {per_node}; give a multiple")
            worlds.add((ranks, max(1, ranks // per_node)))
    return {(ranks, nodes, size) for ranks, nodes in worlds for size in numbers("--size", args.size)}
