"""What a person types: help at once, and one sentence for everything that is wrong."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs import COMMBENCH, clean_environment, commbench

from commbench.cli import VERBS


def test_help_imports_nothing_heavy():
    for arguments in ([], ["run"], ["perf"], ["report"]):
        code = (
            "import sys; from commbench.cli import main\n"
            f"try: main({[*arguments, '--help']!r})\n"
            "except SystemExit as end: assert end.code in (0, None), end.code\n"
            "heavy = {'torch', 'pandas', 'plotly', 'numpy', 'pydantic', 'rich'} & set(sys.modules)\n"
            "assert not heavy, heavy"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment())
        assert done.returncode == 0, done.stderr
        assert "usage: commbench" in done.stdout


def test_help_is_instant():
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([*COMMBENCH, "run", "--help"], capture_output=True, env=clean_environment(), check=True)
        took.append(time.perf_counter() - begin)
    assert min(took) < 0.3


def test_every_verb_has_its_file_and_help():
    for verb in VERBS:
        done = commbench(verb, "--help")
        assert done.returncode == 0 and verb in done.stdout


WRONG = {
    "": "VERB",
    "frob": "frob",
    "run": "quick",
    "run nosuch": "nosuch",
    "run all_reduce --size 3Q": "3Q",
    "run all_reduce --size -8": "-8",
    "run all_reduce --size 64..8": "smaller than from",
    "run all_reduce --size 0..8": "cannot start at 0",
    "run all_reduce --size 8..64*1": "greater than 1",
    "run all_reduce --dtype foo": "foo",
    "run all_reduce --redop mul": "mul",
    "run broadcast --root x": "x",
    "run broadcast --root -1": "-1",
    "run all_reduce --backend openmpi": "openmpi",
    "run all_reduce -n 0": "at least 1",
    "run all_reduce -n x": "invalid int",
    "run all_reduce --iters 0": "settings.iters",
    "run all_reduce --target 2": "settings.target",
    "run all_reduce --timeout 0": "settings.timeout_s",
    "run all_reduce --split MOD,0": "MOD,0",
    "run all_reduce --split 0,0": "twice",
    "run all_reduce -n 2 --split 0,5": "rank 5",
    "run all_to_all_v --matrix /nonexistent.csv": "/nonexistent.csv",
    "run all_reduce --size 1T": "needs",
    "run all_reduce -n 2 --backend nccl": "GPUs",
    "run all_reduce --iface nosuch9": "nosuch9",
    "run all_reduce --out /proc/nosuch": "/proc/nosuch",
    "run --resume /nonexistent": "no run",
    "run quick --resume /tmp": "--resume",
    "status /nonexistent": "no run",
    "report /nonexistent": "no run",
    "export /nonexistent": "no run",
    "perf": "op",
    "perf nosuch": "nosuch",
    "perf all_reduce -b 1T -e 1T": "needs",
    "perf all_reduce -b 8 -e 4": "smaller than from",
    "perf all_reduce -n 0": "at least 1",
    "perf all_reduce -f x": "-f",
    "perf all_reduce -f 1": "greater than 1",
    "perf all_reduce -d complex": "complex",
    "perf all_reduce -G 1": "graph",
    "perf all_reduce -I 1": "not supported",
    "perf broadcast -r x": "-r",
    "perf all_reduce --backend xx": "xx",
    "perf broadcast -g 2 -r 9": "root 9",
    "perf all_reduce -J /nonexistent/x.json": "-J",
    "run broadcast -n 2 --root 5": "root 5",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_one_sentence_and_exit_2(line):
    done = commbench(*line.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert WRONG[line] in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


ENVIRONMENT = {
    "RANK is missing": ({"WORLD_SIZE": "2"}, "RANK"),
    "RANK is no number": ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK='x'"),
    "RANK is too large": ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "RANK=2"),
    "no address": ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
    "unknown host": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "nosuchhost.invalid"}, "nosuchhost.invalid"),
    "bad port": ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "99999"}, "MASTER_PORT"),
    "a level that torch does not know": ({"TORCH_DISTRIBUTED_DEBUG": "foo"}, "TORCH_DISTRIBUTED_DEBUG"),
    "malformed node list": (
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "node[01-"},
        "node[01-",
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_wrong_environment_names_the_variable_within_seconds(name):
    variables, told = ENVIRONMENT[name]
    begin = time.monotonic()
    done = commbench("run", "all_reduce", **variables)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert time.monotonic() - begin < 10


def test_a_suite_file_tells_all_its_errors_at_once(tmp_path):
    suite = tmp_path / "bad.toml"
    suite.write_text(
        'name = "x"\nranks = 0\nfoo = 1\n[[measure]]\nop = "all_reduced"\nsize = "9Q"\n[[measure]]\nop = "barrier"\ndtype = "f7"\n'
    )
    done = commbench("run", suite)
    assert done.returncode == 2
    for told in ("5 errors", "ranks", "foo", "measure.0.op", "measure.0.size", "measure.1.dtype"):
        assert told in done.stderr
    suite.write_text("name = ")
    done = commbench("run", suite)
    assert done.returncode == 2 and "not valid TOML" in done.stderr
    suite.write_bytes(bytes(range(256)))
    assert commbench("run", suite).returncode == 2


@pytest.mark.full
def test_a_full_disk_is_a_sentence(tmp_path):
    full = Path("/dev/full")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/plan.json").symlink_to(full)  # exists() is true of it, so it is taken for a run
    done = commbench("run", "all_reduce", "--out", tmp_path / "run")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert commbench("run", "all_reduce", "--size", "8", "--iters", 2, "--out", tmp_path / "new").returncode == 0
    done = commbench("export", tmp_path / "new", "--out", full)
    assert done.returncode == 3 and "No space left" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.full
def test_a_reader_that_leaves_is_no_traceback(tmp_path):
    assert commbench("run", "all_reduce", "--size", "8..64K", "--iters", 2, "--out", tmp_path / "run").returncode == 0
    line = f"{' '.join(COMMBENCH)} export {tmp_path / 'run'} --format json | head -c 10"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=clean_environment())
    assert done.stderr == ""


def test_doctor_says_what_is_here():
    done = commbench("doctor")
    assert (
        done.returncode == 0
        and "gloo  ready" in done.stdout
        and "mpi   ready" in done.stdout
        and "nccl  missing" in done.stdout
    )
