"""commbench simulate OP: how long commbench's own schedules take on a modelled fabric, which need not be here.

With --pipeline in place of OP: schedules of pipeline parallelism (cli/simulate_pipeline.py).
"""

import argparse
import json
import sys

from commbench.cli import simulate_pipeline

MOST_RANKS = 131_072
_FABRIC = "h100-8x400g"
# A chain's steps all differ, and so do those of pairwise where ranks are not whole nodes: work grows as N^2.
_MOST_DIFFERENT_STEPS = {"chain": 16_384, "pairwise": 4_096}

_ONE_RAIL = (
    "ring and tree leave a node by one of its NICs, or two; rail_ring and hierarchical_tree use all of them, as the "
    "library's own ring and tree do"
)
_OWN_NIC = "links as fitted to pairs that had them alone: each rank is given a NIC of its own"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", nargs="?", help="all_reduce, all_gather, reduce_scatter, all_to_all or broadcast")
    parser.add_argument("--algorithm", help="schedules, comma-separated, such as ring,tree (default: all of OP)")
    parser.add_argument("--ranks", default="8..1024", help="8,64 or 8..16384, which doubles (default: %(default)s)")
    parser.add_argument("--fabric", help=f"name or TOML file (default: {_FABRIC})")
    parser.add_argument("--model", metavar="FILE", help="links as measured: a model of `commbench fit` with pairs")
    parser.add_argument("--per-node", type=int, help="with --model: ranks on a node")
    parser.add_argument("--size", default="1M", help="1M, 8,64K or 8..64M*4, nccl-tests' sizes (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write all figures, and the fabric with its sources, there")
    simulate_pipeline.add_arguments(parser)


def main(args) -> int:
    from dataclasses import asdict

    from rich.console import Console

    from commbench.cli.numbers import numbers
    from commbench.errors import UsageError
    from commbench.fabrics import load_fabric

    if (args.op is None) == (args.pipeline is None):
        raise UsageError("say what to simulate: either an operation such as all_reduce, or --pipeline 1f1b")
    if args.pipeline is not None:
        return simulate_pipeline.main(args)
    if args.model and args.fabric:
        raise UsageError("give either --fabric or --model, not both")
    if args.per_node is not None and (args.per_node < 1 or not args.model):
        raise UsageError(f"--per-node {args.per_node} says how many ranks a node has, 1 or more, beside --model")
    if args.model:
        from pathlib import Path

        from commbench.models.links import measured_fabric
        from commbench.models.model_file import load_models

        fabric = measured_fabric(load_models(Path(args.model)), Path(args.model).name, args.per_node)
    else:
        fabric = load_fabric(args.fabric or _FABRIC)
    ranks, sizes = numbers("--ranks", args.ranks), numbers("--size", args.size)
    if not 1 <= min(ranks) <= max(ranks) <= MOST_RANKS:
        raise UsageError(f"--ranks {args.ranks}: a world has 1 to {MOST_RANKS} ranks to be simulated")
    rows = simulated(args.op, _algorithms(args.op, args.algorithm), ranks, sizes, fabric)
    if args.json:
        try:
            with open(args.json, "w", encoding="utf-8") as file:
                json.dump({"schema": 1, "kind": "simulation", "fabric": asdict(fabric), "rows": rows}, file, indent=1)
        except OSError as error:
            raise UsageError(f"{args.json} cannot be written: {error.strerror}; choose another --json") from None
    Console(width=None if sys.stdout.isatty() else 160).print(_table(rows, args.op, fabric, bool(args.model)))
    return 0


def _algorithms(op: str, text: str | None) -> list[str]:
    from commbench.errors import UsageError
    from commbench.schedules.catalogue import SCHEDULES

    if op not in SCHEDULES:
        raise UsageError(f"there are no schedules of {op!r}; there are some of {', '.join(SCHEDULES)}")
    names = [word.strip().removeprefix("own:") for word in (text or ",".join(SCHEDULES[op])).split(",")]
    for name in names:
        if name not in SCHEDULES[op]:
            raise UsageError(f"there is no schedule {name!r} of {op}; there are {', '.join(SCHEDULES[op])}")
    return list(dict.fromkeys(names))


def simulated(op: str, names: list[str], ranks: list[int], sizes: list[int], fabric) -> list[dict]:
    """A row for each number of ranks, size and schedule; `skipped` says why there is none of its figures.

    `params`: the ranks per node, and as many pieces of a pipeline as make it fastest.
    """
    from dataclasses import asdict

    from commbench.ops import OPS
    from commbench.schedules.catalogue import build
    from commbench.schedules.simulate import simulate

    rows = []
    for n in ranks:
        built = {}
        for size in sizes:
            group = []
            for name in names:
                row = {"op": op, "algorithm": name, "ranks": n, "size_bytes": size}
                row["skipped"] = _refusal(name, n, fabric)
                group.append(row)
                if row["skipped"]:
                    continue
                row["params"] = _params(op, name, n, size, fabric)
                key = name, *row["params"].values()
                if key not in built:
                    built[key] = build(op, name, n, **row["params"])
                result = simulate(built[key], fabric, size)
                factor = OPS[op].bus_factor(n) if n > 1 else None
                busbw = factor * size / result.time_us / 1e3 if factor and result.time_us else None
                row |= {**asdict(result), "busbw_GBps": busbw}
            best = min((row["time_us"] for row in group if not row["skipped"]), default=0)
            for row in group:
                row["fastest"] = n > 1 and not row["skipped"] and row["time_us"] <= best * (1 + 1e-9)
            rows += group
    return rows


def _params(op: str, name: str, n: int, size_bytes: int, fabric) -> dict[str, int]:
    from commbench.schedules.catalogue import BY_NODE, PIPELINED
    from commbench.schedules.pipeline import best_pieces

    found, g = {}, min(n, fabric.domain_ranks)
    if (op, name) in BY_NODE:
        found["per_node"] = g
    if (op, name) in PIPELINED:
        link = fabric.in_switch if name == "nvls" else fabric.intra if n == g else fabric.inter
        # How deep the pipeline is, and the bytes that it cuts up.
        depth, share = {
            "chain": (n - 2, size_bytes),
            "nvls": (3, size_bytes),
            "tree": ((n - 1).bit_length(), size_bytes / 2),
            "hierarchical_tree": ((n // g - 1).bit_length(), size_bytes / g / 2),
        }[name]
        found["pieces"] = best_pieces(max(depth, 0), share, link.latency_us, 1 / (link.bandwidth_GBps * 1e3))
    return found


def _refusal(name: str, n: int, fabric) -> str | None:
    """Why a schedule is not simulated on n ranks of `fabric`; None where it is."""
    domain = fabric.domain_ranks
    uneven = n > domain and n % domain
    if name in ("rail_ring", "hierarchical", "hierarchical_tree", "two_level") and uneven:
        return f"{n} ranks are no whole nodes of {domain}"
    if name == "nvls" and fabric.in_switch is None:
        return f"the switch of {fabric.name} does not reduce"
    if name == "nvls" and n > domain:
        return f"the switch reduces among {domain} ranks only"
    if n > _MOST_DIFFERENT_STEPS.get(name, n) and (name == "chain" or uneven):
        return f"{n} steps that all differ would take long; up to {_MOST_DIFFERENT_STEPS[name]} are simulated"
    return None


def _table(rows: list[dict], op: str, fabric, fitted: bool):
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from commbench.units import format_bytes, format_size

    within = f"{fabric.intra.bandwidth_GBps:.4g} GB/s and {fabric.intra.latency_us:.3g} us a hop"
    between = f"NICs at {fabric.inter.bandwidth_GBps:.4g} GB/s and {fabric.inter.latency_us:.3g} us"
    title = f"{op} simulated, not measured, on {fabric.name}: "
    title += within if fabric.domain_ranks >= MOST_RANKS else f"{fabric.domain_ranks} ranks at {within}, {between}"
    crossing = any(row["algorithm"] in ("ring", "tree") and row["ranks"] > fabric.domain_ranks for row in rows)
    notes = [_ONE_RAIL] if crossing and fabric.nics_per_node > 1 else []
    notes += [_OWN_NIC] if fitted and fabric.domain_ranks < MOST_RANKS else []
    table = Table(
        title=title,
        caption="\n".join(notes) or None,
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        title_justify="left",
        caption_justify="left",
        show_edge=False,
    )
    for name in ("ranks", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("algorithm", no_wrap=True)
    for name in ("time us", "busbw GB/s", "inter", "busy %"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("busiest link", overflow="fold")
    table.add_column("", overflow="fold")
    for row, after in zip(rows, [*rows[1:], None]):
        pieces = row.get("params", {}).get("pieces", 1)
        name = row["algorithm"] + (f", {pieces} pieces" if pieces > 1 else "")
        cells = [str(row["ranks"]), format_size(row["size_bytes"]), name]
        if row["skipped"]:
            cells += ["-", "-", "-", "-", "-", f"skip: {row['skipped']}"]
        else:
            busiest = row["busiest"] or {"name": "-", "share": 0}
            cells += [
                _number(row["time_us"]),
                "n/a" if row["busbw_GBps"] is None else _number(row["busbw_GBps"]),
                format_bytes(row["link_bytes"].get("inter", 0)),
                f"{100 * busiest['share']:.0f}",
                busiest["name"],
                "fastest" * row["fastest"],
            ]
        ends = after is not None and (after["ranks"], after["size_bytes"]) != (row["ranks"], row["size_bytes"])
        style = "bold green" if row["fastest"] else "dim" if row["skipped"] else ""
        table.add_row(*map(Text, cells), style=style, end_section=ends)
    return table


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1e4 else f"{value:.4g}"
