"""The knee of all_gather buckets in a stored run: python tests/benchmarks/gather_knee.py RUN

`commbench run layers` holds the sweep; the folk figure is FSDP's, 33 million elements.
"""

import sys

from commbench.models.gather_knee import FOLK_ELEMENTS, gather_knees, step_knees
from commbench.results.store import load_run


def main(folder: str) -> None:
    samples = load_run(folder).samples()
    for what, found in (("all_gather", gather_knees(samples)), ("step of data_parallel", step_knees(samples))):
        for key, knee in found.items():
            place = " ".join(str(part) for part in key if not isinstance(part, tuple))
            said = f"{knee.elements} elements, the folk figure is {FOLK_ELEMENTS}" if knee.elements else knee.reason
            print(f"{what} {place}: {said}")
            print("   " + "  ".join(f"{elements}: {over:.2f}x" for elements, over in knee.curve))


if __name__ == "__main__":
    main(sys.argv[1])
