"""slurm/accept.sbatch: its text, and as a real job whose exit code is the verdict's.

`python tests/slurm/test_slurm_accept.py` writes the golden file anew.
"""

import json
import re
from pathlib import Path

import pytest

from commbench.slurm.render import Wishes, read_script, render
from commbench.slurm.site import check_site, read_site

GOLDEN = Path(__file__).parents[1] / "golden" / "accept-h100-8.sbatch"
# A ladder in seconds. Its sizes are too small to blame a node for a noisy neighbour.
LADDER = """name = "small"
[settings]
budget_s = 0.1
[[measure]]
stage = "nodes"
op = "all_gather"
split = "node"
size = "64K"
[[measure]]
stage = "rails"
op = "all_gather"
split = "rail"
size = "64K"
[[measure]]
stage = "scale"
op = "all_reduce"
split = "first nodes"
size = "64K"
[[measure]]
stage = "soak"
op = "all_reduce"
size = "64K"
soak_s = 0.5
"""


def rendered() -> str:
    return render(read_script("accept"), read_site("h100-8"), Wishes(nodes=(16,), flags=("--launches", "3")))


def test_golden():
    assert rendered() == GOLDEN.read_text()


def test_a_site_names_its_own_profile():
    site = check_site({"backend": "gloo", "setup": ["PROFILE=/shared/my site.toml"]}, "test")
    lines = render(read_script("accept"), site).splitlines()
    assert lines.index("PROFILE=h100-8x400g") < lines.index("PROFILE=/shared/my site.toml")  # the later one counts
    assert lines[-1] == 'commbench status "$RUN"'


def steady(run: Path) -> Path:
    """The run as a quiet machine would have left it, each call 5 ms: of a noisy one there may be no baseline."""
    for journal in run.glob("launch-*.jsonl"):
        records = [json.loads(line) for line in journal.read_text().splitlines()]
        records = [r | {"samples_us": [5000.0] * 10} if r["record"] == "point" else r for r in records]
        journal.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def profile_from(made: Path, times: float, folder: Path) -> Path:
    """A site's baseline whose bars are so many times as high."""
    path = folder / f"times{times:g}.toml"
    text = made.read_text().replace('name = "own"', f'name = "times{times:g}"', 1)
    path.write_text(re.sub(r"^expected = (\S+)", lambda m: f"expected = {float(m[1]) * times}", text, flags=re.M))
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from test_slurm_jobs import slurm_here

    with slurm_here(tmp_path_factory.mktemp("cluster"), 3, "namespaces") as running:
        yield running


@pytest.mark.full
def test_the_exit_code_of_the_job_is_that_of_the_verdict(cluster, tmp_path):
    """A ladder becomes the site's own profile; the next one passes where a fiftieth of it is expected, and fails where
    a thousand times as much is."""
    from test_slurm_jobs import commbench, site_file, submit

    suite = tmp_path / "small.toml"
    suite.write_text(LADDER)
    first = submit(cluster, tmp_path, "sweep", "--nodes", "3", "--suite", suite, site=site_file(tmp_path, 2))
    assert first.wait() == "COMPLETED", first.output()
    made = tmp_path / "own.toml"
    told = commbench(cluster, "baseline", steady(first.folder / "sweep"), "--out", made)
    assert told.returncode == 0 and "4 rules" in told.stdout, told.stdout + told.stderr
    for times, state, code in ((0.02, "COMPLETED", 0), (1000, "FAILED", 1)):
        profile = profile_from(made, times, tmp_path)
        site = site_file(tmp_path, 2)
        site.write_text(f'setup = ["PROFILE={profile}"]\n{site.read_text()}')
        out = tmp_path / f"job{code}"
        job = submit(cluster, tmp_path, "accept", "--nodes", "3", "--suite", suite, site=site, out=out)
        assert job.wait() == state, job.output()
        assert f"ExitCode={code}:0" in cluster.call("scontrol", "show", "job", job.id)
        assert re.search(rf"^exit code {code}\b", job.output().rstrip().splitlines()[-1]), job.output()
        verdict = job.records("end", "accept")[-1]["verdict"]
        assert verdict["profile"] == profile.stem and "error" not in verdict["counts"]
        assert verdict["counts"].get("fail", 0) == (8 if code else 0)  # 3 nodes, 2 rails, 2 and 3 nodes, the soak
        assert (out / "accept" / "accept.html").read_text().count("all_gather, 64K, gloo") > 1
        status = commbench(cluster, "slurm", "status", job.folder)
        assert status.returncode == code, status.stdout


if __name__ == "__main__":
    GOLDEN.write_text(rendered())
