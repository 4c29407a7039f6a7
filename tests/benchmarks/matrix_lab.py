"""Is the time of a skewed matrix what equal shares predict? On a lab of set rates, over Gloo. Needs root.

    python tests/benchmarks/matrix_lab.py [--size 1M]

The bar: each skew and router within 20 % of its prediction, from where on a row of the report says that the two part.
Nodes of one rank are left out: there Gloo's equal shares fill a link to three quarters and skewed ones fill it whole.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from labs import fresh, measured, verdict

from commbench.models.matrix_time import PARTED, curves, matrix_time
from commbench.results.metrics import flow_words, time_us

SHAPES = [("2", "2", "800mbit", "100mbit"), ("2", "2", "400mbit", "200mbit"), ("2", "3", "800mbit", "100mbit")]
SUITE = """
name = "matrix-lab"
[settings]
iters = 8
warmup = 2
[[measure]]
op = "all_to_all_v"
matrix = "equal"
split = ["all", "node"]
size = {{ from = "64K", to = "4M", factor = 4 }}
[[measure]]
op = "all_to_all_v"
skew = [1, 1.5, 2, 3, 4]
size = "{size}"
[[measure]]
op = "all_to_all_v"
routing = ["uniform", "zipf:1.2", "hot:8:0.6"]
copies = ["selection", "rank"]
size = "{size}"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1M")
    given = parser.parse_args()
    failed = False
    for nodes, each, intra, inter in SHAPES:
        node_of = [rank // int(each) for rank in range(int(nodes) * int(each))]
        nic_of = [None] * len(node_of)  # the ranks of a node share its uplink
        with tempfile.TemporaryDirectory() as folder:
            suite = Path(folder) / "suite.toml"
            suite.write_text(SUITE.format(size=given.size))
            shape = ("--nodes", nodes, "--ranks-per-node", each, "--intra", intra, "--inter", inter)
            with fresh("bench-matrix", *shape) as name:
                samples = measured(name, str(suite), "--backend", "gloo")
        fitted, errors = curves(samples, node_of, nic_of), []
        for sample in samples:
            if flow_words(sample.point):
                told = matrix_time(sample.point, fitted, node_of, nic_of)
                errors.append((time_us(sample) / told.time_us - 1, flow_words(sample.point), told.busiest))
        worst, flow, port = max(errors, key=lambda error: abs(error[0]))
        answer = verdict(worst, PARTED)
        failed |= answer == "fail"
        print(
            f"{answer}: {nodes} nodes of {each}, {intra} : {inter}: {len(errors)} matrices, median "
            f"{statistics.median(error for error, *_ in errors):+.1%}, worst {worst:+.1%} ({flow}; {port})",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
