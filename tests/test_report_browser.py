"""The page of a real run, drawn by a real browser without a network."""

import re
import shutil
import subprocess

import pytest
from runs import commbench

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not shutil.which("chromium"), reason="no chromium: tests/system-packages.sh installs it"),
]


def test_chromium_draws_every_figure(tmp_path):
    out = tmp_path / "run"
    done = commbench(
        "run", "all_reduce", "-n", 2, "--backend", "gloo,mpi", "--size", "8..64K", "--budget", "0.05", "--out", out
    )
    assert done.returncode == 0, done.stderr
    page = out / "report.html"
    assert str(page) in done.stdout
    browser = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000",
            "--dump-dom", page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    drawn = len(re.findall(r'class="main-svg"', browser.stdout))
    assert drawn >= 4, browser.stderr[-500:]
    assert "all_reduce" in browser.stdout and "exit code 0" in browser.stdout
