"""Does commbench find the rates that a lab was given? Point-to-point payload and its ratio, over fresh labs. Needs root.

    python tests/benchmarks/lab_rates.py [--labs 5] [--size 16M] [--backend gloo]

Bars: payload within 2 % of what the shaping allows, the ratio within 3 % of the set one, in every lab. HTB lets its first
150 kB through at once, which makes 16 MiB look 0.9 % too fast.
"""

import argparse
import statistics
import sys

from labs import fresh, measured, payload_MBps, verdict

from commbench.lab.quantities import parse_rate, payload_GBps

RATES = (("800mbit", "250mbit"), ("800mbit", "100mbit"), ("900mbit", "50mbit"))
PAYLOAD_BAR, RATIO_BAR = 0.02, 0.03


def pair(name: str, members: str, size: str, backend: str) -> float:
    """MB/s of a ping-pong between two ranks of the lab."""
    launcher = "mpirun" if backend == "mpi" else "environment"
    what = ["p2p_latency", "--backend", backend, "--size", size, "--split", members, "--iters", "3", "--warmup", "1"]
    return payload_MBps(measured(name, *what, "--checks", "1", launcher=launcher)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labs", type=int, default=5)
    parser.add_argument("--size", default="16M")
    parser.add_argument("--backend", choices=["gloo", "mpi"], default="gloo")
    given = parser.parse_args()
    failed = False
    for rates in RATES:
        allowed = [payload_GBps(parse_rate(rate), 1500) * 1e3 for rate in rates]
        found = []
        for number in range(given.labs):
            with fresh("bench-rates", "--intra", rates[0], "--inter", rates[1]) as name:
                found.append([pair(name, members, given.size, given.backend) for members in ("0,1", "0,2")])
            told = ", ".join(f"{mbps:.2f} of {most:.2f} MB/s" for mbps, most in zip(found[-1], allowed))
            print(f"{' : '.join(rates)} lab {number + 1}: {told}, ratio {found[-1][0] / found[-1][1]:.3f}", flush=True)
        columns = [
            ("within a node", [intra / allowed[0] - 1 for intra, _ in found], PAYLOAD_BAR),
            ("between nodes", [inter / allowed[1] - 1 for _, inter in found], PAYLOAD_BAR),
            ("ratio", [intra / inter * allowed[1] / allowed[0] - 1 for intra, inter in found], RATIO_BAR),
        ]
        for what, errors, bar in columns:
            worst = max(errors, key=abs)
            answer = verdict(worst, bar)
            failed |= answer == "fail"
            middle = statistics.median(errors)
            print(f"{answer}: {' : '.join(rates)}, {given.backend}, {what}: median {middle:+.2%}, worst {worst:+.2%}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
