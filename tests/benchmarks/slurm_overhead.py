"""How long a job takes from the first line of its script to its first timed point, beyond importing torch (bar: 3 s).

On a local Slurm of two nodes with one rank each; needs root. The import is timed right after, in two tasks at once.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "slurm"))

from local_slurm import local_slurm
from test_slurm_jobs import site_file, submit

IMPORT = "import time; began = time.time(); import torch; print(time.time() - began)"
BAR_S = 3.0


def overhead_s(cluster, folder: Path) -> float:
    site = site_file(folder)
    site.write_text(f'setup = ["date +%s.%N > {folder}/began"]\n' + site.read_text())
    job = submit(cluster, folder, "sweep", "--suite", "all_reduce", "--flags", "--size 8 --iters 10", site=site)
    while not job.has_points():
        time.sleep(0.01)
    first_s = time.time()
    job.wait()
    own_s = sum(job.records("point")[0]["samples_us"]) / 1e6
    imports = cluster.call("srun", "-N2", "--ntasks-per-node=1", sys.executable, "-c", IMPORT).split()
    return first_s - float((folder / "began").read_text()) - own_s - max(map(float, imports))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, local_slurm(Path(folder) / "slurm", nodes=2) as cluster:
        Path(folder).chmod(0o755)
        found = []
        for number in range(5):
            (own := Path(folder) / str(number)).mkdir()
            found.append(overhead_s(cluster, own))
    told = ", ".join(f"{seconds:.2f}" for seconds in found)
    middle = median(found)
    print(
        f"{'pass' if middle < BAR_S else 'fail'}: {middle:.2f} s beyond importing torch (median of {told}; bar {BAR_S} s)"
    )


if __name__ == "__main__":
    main()
