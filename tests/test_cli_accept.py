"""The verbs accept, baseline and compare, as people and machines call them."""

import json
import re
import signal
import xml.etree.ElementTree as ElementTree

import pytest
from judged import G, node, over_nodes, p5, row, stored
from measured import line_run, sample, write_run

from commbench.acceptance.profile import load_profile
from commbench.cli import main

RULES = len(load_profile("h100-8x400g").rule)
PERFDATA = re.compile(r"'[^'=|]+'=[-+0-9.e]+;(?:[0-9.]*:?[0-9.]*)?;(?:[0-9.]*:?[0-9.]*)?")
LINE = re.compile(r"COMMBENCH (OK|WARNING|CRITICAL|UNKNOWN) - ([^|]+?)(?: \| (.+))?\n")


class Done:
    """What a call of the command line has left."""

    def __init__(self, code, out, err):
        self.returncode, self.stdout, self.stderr = code, out, err


@pytest.fixture
def commbench(capsys):
    """The command line in this process: a new one for each call would take longer than all that it does."""

    def call(*arguments):
        handler = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main([str(argument) for argument in arguments])
        finally:
            signal.signal(signal.SIGTERM, handler)
        told = capsys.readouterr()
        return Done(ended.value.code or 0, told.out, told.err)

    return call


@pytest.fixture
def run(tmp_path):
    return lambda rows, name="run": stored(tmp_path / name, rows).path


def test_the_published_sweep_passes_and_status_returns_the_code(commbench, run):
    path = run(p5())
    done = commbench("accept", path, "--profile", "h100-8x400g")
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith(
        f"pass, exit code 0 (2 pass, {RULES - 2} skip)"
    )
    assert commbench("status", path).returncode == 0


def test_a_failed_verdict_is_what_status_returns_until_it_is_judged_anew(commbench, run):
    path = run(over_nodes("all_reduce", 231))
    assert commbench("status", path).returncode == 0  # measured well
    done = commbench("accept", path, "--profile", "h100-8x400g")
    assert done.returncode == 1 and "check: 231 is about 1/2" in done.stdout and "again: commbench run" in done.stdout
    status = commbench("status", path, "--json")
    assert status.returncode == 1 and "all_reduce over 2 nodes" in json.loads(status.stdout)["reason"]
    (journal,) = path.glob("launch-*.jsonl")
    end = json.loads(journal.read_text().splitlines()[-1])
    assert end["record"] == "end" and end["exit_code"] == 1 and end["verdict"]["profile"] == "h100-8x400g"
    assert commbench("accept", path, "--profile", "h800-8x400g").returncode == 0
    assert commbench("status", path).returncode == 0


def test_cut_at_256_mib_the_answer_is_error(commbench, run):
    path = run(p5(256 << 20))
    assert commbench("accept", path, "--profile", "h100-8x400g").returncode == 3
    assert commbench("status", path).returncode == 3


def test_two_profiles_name_the_machine(commbench, run):
    path = run(node("all_gather", 160, (1, 4)) + node("all_reduce", 215, (1, 4)))
    both = "--profile", "h100-8x400g", "--profile", "h800-8x400g"
    done = commbench("accept", path, *both)
    assert done.returncode == 0 and "machine: h800-8x400g" in done.stdout and "h100-8x400g: fail" in done.stdout
    told = json.loads(commbench("accept", path, *both, "--json").stdout)
    assert told["machine"]["name"] == told["profile"] == "h800-8x400g" and told["verdict"] == "pass"
    assert told["machine"]["verdicts"] == {"h100-8x400g": "fail", "h800-8x400g": "pass"}
    neither = commbench("accept", run(over_nodes("all_reduce", 470), "two"), *both)
    assert neither.returncode == 3 and "no profile is named" in neither.stderr


def test_json_holds_every_verdict(commbench, run):
    told = json.loads(commbench("accept", run(p5()), "--profile", "h100-8x400g", "--json").stdout)
    verdict = next(v for v in told["verdicts"] if v["word"] == "pass")
    for key in ("measured", "expected", "tolerance", "source", "algorithm", "again", "repeated", "size_bytes"):
        assert verdict[key]
    assert told["counts"] == {"pass": 2, "skip": RULES - 2}


def test_junit_is_read_by_a_real_parser(commbench, run, tmp_path):
    rows = node("all_reduce", 430) + [row("all_gather", 365, 1 << 20)]
    done = commbench("accept", run(rows), "--profile", "h100-8x400g", "--junit", tmp_path / "v.xml")
    assert done.returncode == 3
    suite = ElementTree.parse(tmp_path / "v.xml").getroot()
    assert suite.tag == "testsuite" and suite.get("failures") == "1" and suite.get("errors") == "1"
    cases = suite.findall("testcase")
    assert len(cases) == int(suite.get("tests")) == RULES and len(suite.findall("testcase/skipped")) == int(
        suite.get("skipped")
    )
    (failure,) = suite.findall("testcase/failure")
    assert "430 GB/s, expected 475" in failure.get("message") and "again: commbench run" in failure.text
    (error,) = suite.findall("testcase/error")
    assert "judged at 4G to 16G" in error.get("message")


@pytest.mark.parametrize(
    "rows, code, state",
    [
        (node("all_reduce", 476), 0, "OK"),
        (node("all_reduce", 450), 1, "WARNING"),
        (node("all_reduce", 400), 2, "CRITICAL"),
        (p5(256 << 20), 3, "UNKNOWN"),
    ],
)
def test_nagios(commbench, run, rows, code, state):
    path = run(rows)
    done = commbench("accept", path, "--profile", "h100-8x400g", "--nagios")
    assert done.returncode == code
    match = LINE.fullmatch(done.stdout)
    assert match and match[1] == state and "h100-8x400g" in match[2]
    for figure in re.findall(r"'[^']+'=\S+", match[3]):
        assert PERFDATA.fullmatch(figure)
    assert (
        commbench("status", path).returncode == {0: 0, 1: 0, 2: 1, 3: 3}[code]
    )  # the journal keeps the design's codes


def test_a_page_without_scripts_and_with_nothing_unescaped(commbench, run, tmp_path):
    rows = [row("all_reduce", 400, group="node <script>alert(1)</script>")]
    path = run(rows)
    done = commbench(
        "accept", path, "--profile", "h100-8x400g", "--report", tmp_path / "v.html", "--junit", tmp_path / "v.xml"
    )
    assert done.returncode == 1
    page = (tmp_path / "v.html").read_text()
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page and len(page) < 100_000
    assert "400</b> GB/s where 475 is expected" in page and "nv-fabricmanager" in page
    ElementTree.parse(tmp_path / "v.xml")


def test_names_from_strangers_reach_neither_terminal_nor_xml(commbench, run, tmp_path):
    rows = [row("all_reduce", 400, group="node\x1b[31m\x00|'=;\n#1")]
    path = run(rows)
    done = commbench("accept", path, "--profile", "h100-8x400g", "--junit", tmp_path / "v.xml")
    assert "\x1b" not in done.stdout and "\x00" not in done.stdout
    assert "node" in ElementTree.parse(tmp_path / "v.xml").getroot().find("testcase[failure]").get("name")
    line = commbench("accept", path, "--profile", "h100-8x400g", "--nagios").stdout
    assert LINE.fullmatch(line)


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (("--profile", "h100"), 2, "there is no profile"),
        ((), 2, "--profile"),
        (("--profile", "h100-8x400g", "--junit", "/nowhere/x.xml"), 2, "cannot be written"),
        (("--profile", "h100-8x400g", "--report", "/nowhere/x.html"), 2, "cannot be written"),
    ],
)
def test_usage(commbench, run, arguments, code, said):
    done = commbench("accept", run(p5()), *arguments)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr


def test_a_run_of_one_rank_or_of_something_else(commbench, run, tmp_path):
    alone = commbench("accept", run([sample(10, G, ranks=1, backend="nccl")]), "--profile", "h100-8x400g")
    assert alone.returncode == 3 and "run of 1 rank" in alone.stderr and len(alone.stderr.splitlines()) == 1
    other = commbench("accept", run([row("broadcast", 100)], "other"), "--profile", "h100-8x400g")
    assert other.returncode == 3 and "nothing of this run is judged" in other.stdout
    nothing = commbench("accept", tmp_path / "none", "--profile", "h100-8x400g")
    assert nothing.returncode == 2


def test_a_run_that_ended_badly_keeps_its_code(commbench, run, tmp_path):
    path = run([*node("all_reduce", 476), row("broadcast", 100, 1 << 20)])
    (journal,) = path.glob("launch-*.jsonl")
    lines = [line for line in journal.read_text().splitlines() if '"broadcast"' not in line]
    journal.write_text("\n".join(lines[:-1]) + "\n")  # killed in the last point: no end record
    assert commbench("status", path).returncode == 4
    done = commbench("accept", path, "--profile", "h100-8x400g")
    assert done.returncode == 4 and "it was killed" in done.stdout
    assert commbench("status", path).returncode == 4


def test_baseline_then_accept_then_compare(commbench, tmp_path):
    good = line_run(tmp_path / "good", sizes=[1 << 16, 1 << 20], launches=5, launch_sd=0.02)
    made = commbench("baseline", good, "--out", tmp_path / "site.toml")
    assert made.returncode == 0 and "2 rules" in made.stdout
    assert commbench("accept", good, "--profile", tmp_path / "site.toml").returncode == 0
    slow = line_run(tmp_path / "slow", beta_us_per_byte=1.4e-3, sizes=[1 << 16, 1 << 20], launches=5, launch_sd=0.02)
    assert commbench("accept", slow, "--profile", tmp_path / "site.toml").returncode == 1
    compared = commbench("compare", good, slow)
    assert compared.returncode == 1 and compared.stdout.splitlines()[-1] == "regressed: all_reduce"
    assert json.loads(commbench("compare", good, slow, "--json").stdout)["exit_code"] == 1
    assert commbench("compare", good, good).returncode == 0


def test_compare_of_single_launches_never_exits_1(commbench, tmp_path):
    runs = [write_run(tmp_path / str(time), [sample(time, 1 << 20)]) for time in (100, 200)]
    done = commbench("compare", *runs)
    assert done.returncode == 0 and "within one launch only" in done.stdout and "2.0" in done.stdout


def test_help_of_each_verb_says_how(commbench):
    for verb in ("accept", "baseline", "compare"):
        done = commbench(verb, "--help")
        assert done.returncode == 0 and "examples:" in done.stdout and "%%" not in done.stdout


def test_bad_names_and_places(commbench, tmp_path):
    good = line_run(tmp_path / "good", sizes=[1 << 16])
    assert commbench("baseline", good, "--out", "/nowhere/site.toml").returncode == 2
    assert commbench("baseline", good, "--out", tmp_path / "x.toml", "--name", "a b").returncode == 2
    assert commbench("compare", good, tmp_path / "none").returncode == 2
