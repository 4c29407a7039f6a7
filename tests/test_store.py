"""What a run has left is read whole whatever happened to it, and its exit code tells the worst of it."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.results.journal import Journal, read_lines
from commbench.results.plan import Plan, Settings
from commbench.results.records import SCHEMA, Point, Sample
from commbench.results.store import exit_code, goes_on, is_running, load_run, newest_run

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=150)

POINTS = tuple(
    Point(
        "all_reduce",
        "gloo",
        1024 * 2**i,
        members=(0, 1),
        ranks=2,
        world_size=2,
        count=256 * 2**i,
        redop="sum",
        params={"requested_bytes": 1024 * 2**i},
    )
    for i in range(3)
)
HEADER = {"record": "header", "schema": SCHEMA, "launch": 1, "ranks": []}


def sample(i=0, launch=1, status="ok", **what):
    return Sample(
        POINTS[i],
        launch,
        "2026-01-01T00:00:00Z",
        samples_us=(1.0, 2.0),
        wrong=0,
        status=status,
        reason="" if status == "ok" else status,
        **what,
    )


def end(code=0, reason=""):
    return {"record": "end", "schema": SCHEMA, "exit_code": code, "reason": reason, "missing": []}


def run_of(path, *launches, repetitions=1, points=POINTS):
    """A run folder with one journal per list of samples and records."""
    path.mkdir(exist_ok=True)
    Plan("quick", tuple((p,) for p in points), Settings(), repetitions).save(path / "plan.json")
    for number, records in enumerate(launches, 1):
        journal = Journal(path / f"launch-{number:03d}.jsonl")
        for record in [HEADER, *records]:
            journal.write(record.to_json() if isinstance(record, Sample) else record)
        journal.close()
    return path


def code(*launches, path, **how):
    return exit_code(load_run(run_of(path, *launches, **how)))


# the journal


def test_a_journal_reads_back_what_was_written(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    records = [{"a": 1}, {"text": "line\nbreak é \u2028 \x85"}, {"nested": [1, {"b": None}]}]
    for record in records:
        journal.write(record)
    journal.close()
    assert read_lines(path) == (records, path.stat().st_size, 0)
    assert path.read_bytes().count(b"\n") == 3


def test_a_record_is_on_the_disk_when_write_returns(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.write({"a": 1})
    assert read_lines(tmp_path / "j.jsonl")[0] == [{"a": 1}]
    journal.close()


def test_what_is_no_json_is_never_written(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    for value in (float("nan"), float("inf"), {1, 2}):
        with pytest.raises((ValueError, TypeError)):
            journal.write({"a": value})
    journal.write({"a": 1})
    journal.close()
    assert read_lines(tmp_path / "j.jsonl")[0] == [{"a": 1}]


def test_a_torn_last_line_waits_for_its_end(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": ')
    records, at, bad = read_lines(path)
    assert (records, at, bad) == ([{"a": 1}], 9, 0)
    with open(path, "ab") as file:
        file.write(b"2}\n")
    assert read_lines(path, at) == ([{"b": 2}], 18, 0)
    assert read_lines(path, 18) == ([], 18, 0)


@pytest.mark.parametrize("cut", range(1, 9))
def test_writing_goes_on_after_a_torn_line(tmp_path, cut):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b'{"b": 2}\n'[:cut])
    journal = Journal(path)
    journal.write({"c": 3})
    journal.close()
    records, _, bad = read_lines(path)
    # A line that lost only its end is whole.
    assert (records, bad) == (([{"a": 1}, {"b": 2}, {"c": 3}], 0) if cut == 8 else ([{"a": 1}, {"c": 3}], 1))


def test_an_empty_and_a_whole_file_get_no_extra_line(tmp_path):
    for content in (b"", b'{"a": 1}\n'):
        path = tmp_path / "j.jsonl"
        path.write_bytes(content)
        Journal(path).close()
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage",
        b"\xff\xfe\x00\x01",
        b"[1, 2]",
        b"3",
        b"null",
        b'"text"',
        b"{",
        b"}{",
        b"{'a': 1}",
        b"\x00" * 50,
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_garbage_lines_are_counted_and_the_rest_is_read(tmp_path, garbage):
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"a": 1}\n' + garbage + b'\n\n{"b": 2}\n')
    records, _, bad = read_lines(path)
    assert records == [{"a": 1}, {"b": 2}] and bad == 1


@fixed
@given(st.binary(max_size=200), st.integers(0, 250))
def test_a_journal_cut_anywhere_loses_at_most_one_line(tmp_path_factory, noise, cut):
    path = tmp_path_factory.getbasetemp() / "cut.jsonl"
    whole = b"".join(json.dumps({"n": i, "pad": "x" * 20}).encode() + b"\n" for i in range(6))
    path.write_bytes(whole[:cut])
    records, at, bad = read_lines(path)
    assert [r["n"] for r in records] == list(range(whole[:cut].count(b"\n"))) and bad == 0
    journal = Journal(path)
    journal.write({"n": 99})
    journal.close()
    assert read_lines(path)[0][-1] == {"n": 99}
    # Any bytes at all are read without an error.
    path.write_bytes(noise)
    records, at, _ = read_lines(path)
    assert all(isinstance(record, dict) for record in records) and at <= len(noise)


# the plan


def test_a_plan_reads_back_as_it_was_saved(tmp_path):
    plan = Plan(
        "quick",
        ((POINTS[0], POINTS[1]), (POINTS[2],)),
        Settings(iters=7, graph=2),
        3,
        ("commbench", "run"),
        "2026-01-01T00:00:00Z",
    )
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert (
        Plan.load(tmp_path / "plan.json").hash == plan.hash == json.loads((tmp_path / "plan.json").read_text())["hash"]
    )


def test_a_plans_hash_tells_what_is_measured_and_how():
    plan = Plan("quick", ((POINTS[0],), (POINTS[1],)), Settings())
    assert replace(plan, name="other", created_at="now", command=("x",)).hash == plan.hash
    for other in (
        replace(plan, settings=Settings(iters=5)),
        replace(plan, steps=((POINTS[0], POINTS[1]),)),
        replace(plan, steps=((POINTS[1],), (POINTS[0],))),
        replace(plan, steps=plan.steps[:1]),
    ):
        assert other.hash != plan.hash


def test_worlds_are_in_the_order_of_the_plan():
    steps = ((POINTS[0],), (replace(POINTS[1], backend="mpi"),), (POINTS[2],), (replace(POINTS[0], world_size=4),))
    assert Plan("x", steps, Settings()).worlds() == [("gloo", 2, ()), ("mpi", 2, ()), ("gloo", 4, ())]


def plan_json(**changes):
    plan = Plan("quick", ((POINTS[0],),), Settings(), 1)
    data = {
        "schema": SCHEMA,
        "steps": [[POINTS[0].to_json()]],
        "settings": Settings().__dict__,
        "name": plan.name,
        "launches": 1,
    }
    return {**data, "command": [], "created_at": "", **changes}


def test_the_plan_written_by_hand_above_is_one(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(plan_json()))
    assert Plan.load(tmp_path / "plan.json").steps == ((POINTS[0],),)


def test_a_missing_plan_says_what_a_run_is(tmp_path):
    with pytest.raises(UsageError, match="has no plan.json; a run is the folder that `commbench run` printed"):
        load_run(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        load_run(tmp_path / "nothing")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        load_run(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"plan", b"[" * 100_000, b"9" * 5000])
def test_a_plan_that_is_no_json_is_told_by_name(tmp_path, content):
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(UsageError, match="plan.json cannot be read as JSON"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    "data, found",
    [
        ([], "list"),
        (3, "int"),
        ("x", "str"),
        (None, "NoneType"),
        ({}, "None"),
        (plan_json(schema=2), "2"),
        (plan_json(schema="1"), "'1'"),
    ],
)
def test_a_plan_of_another_schema_is_told_with_both(tmp_path, data, found):
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=f"has schema '?{found}.*reads schema {SCHEMA}"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 5}, {"steps": None}, {"steps": "abc"}, {"steps": [1]}, {"steps": [[1]]}, {"steps": [["x"]]},
        {"steps": [[{}]]}, {"steps": [[None]]},
        {"steps": {"a": 1}}, {"steps": [[{**POINTS[0].to_json(), "members": 3}]]}, {"settings": None},
        {"settings": []}, {"settings": 3},
        {"settings": {"colour": 1}}, {"launches": "two"}, {"launches": None}, {"launches": 1.5}, {"launches": [1]},
        {"launches": {}},
        {"command": 3}, {"command": None},
    ],
)  # fmt: skip
def test_a_plan_of_garbage_types_is_a_usage_error(tmp_path, changes):
    (tmp_path / "plan.json").write_text(json.dumps(plan_json(**changes)))
    with pytest.raises(UsageError, match="plan.json is not a plan that this commbench wrote"):
        load_run(tmp_path)


@pytest.mark.parametrize("key", ["steps", "settings", "name", "launches", "command", "created_at"])
def test_a_plan_without_a_part_is_a_usage_error(tmp_path, key):
    data = plan_json()
    del data[key]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=f"not a plan.*{key}"):
        load_run(tmp_path)


def test_a_field_of_a_later_version_is_passed_over(tmp_path):
    point = POINTS[0].to_json() | {"colour": "red", "id": "1"}
    (tmp_path / "plan.json").write_text(json.dumps(plan_json(steps=[[point]], colour="red")))
    assert load_run(tmp_path).plan.points() == [POINTS[0]]


# a run


def test_a_run_is_read_whole(tmp_path):
    run = load_run(run_of(tmp_path, [sample(0), sample(1, status="skip")], [sample(2), end()]))
    assert [s.point for s in run.samples()] == list(POINTS)
    assert run.samples()[0] == sample(0)
    assert [launch.header["record"] for launch in run.launches] == ["header"] * 2
    assert [launch.end for launch in run.launches] == [{}, end()]


def test_launches_are_in_order_and_other_files_are_no_launches(tmp_path):
    path = run_of(tmp_path, *([end(i)] for i in range(12)))
    for name in ("launch-.txt", "report.html", "launch-001.jsonl.bak"):
        (path / name).write_text("x")
    assert [launch.end["exit_code"] for launch in load_run(path).launches] == list(range(12))


def test_unreadable_lines_are_counted(tmp_path):
    path = run_of(tmp_path, [sample(0), sample(1), sample(2), end()])
    bad = [
        b"garbage",
        b'{"record": "point"}',
        b'{"record": "point", "op": 3}',
        json.dumps({**sample(0).to_json(), "members": 7}).encode(),
        b"[]",
    ]
    with open(path / "launch-001.jsonl", "ab") as file:
        file.write(b"\n".join([*bad, b'{"record": "unknown"}', b'{"a": 1}', b""]))
    (launch,) = load_run(path).launches
    assert launch.unreadable == len(bad) and len(launch.samples) == 3 and launch.end == end()


@pytest.mark.parametrize("record", [end(), HEADER, sample(0).to_json()])
def test_a_record_of_another_schema_is_told_by_file(tmp_path, record):
    path = run_of(tmp_path, [sample(0)])
    with open(path / "launch-001.jsonl", "a") as file:
        file.write(json.dumps(record | {"schema": 99}) + "\n")
    with pytest.raises(UsageError, match="launch-001.jsonl has schema 99; this commbench reads schema 1"):
        load_run(path)


def test_a_point_measured_again_counts_once_and_with_its_last_outcome(tmp_path):
    run = load_run(run_of(tmp_path, [sample(0, status="error"), sample(1), end(3)], [sample(0), sample(2), end()]))
    assert len(run.samples()) == 3 and {s.status for s in run.samples()} == {"ok"}
    assert run.finished(1) == {p.id for p in POINTS}


def test_what_ended_in_an_error_is_not_finished_and_repetitions_are_apart(tmp_path):
    run = load_run(
        run_of(
            tmp_path,
            [
                sample(0),
                sample(1, status="error"),
                sample(2, status="wrong"),
                sample(0, launch=2, status="skip"),
                end(3),
            ],
            repetitions=2,
        )
    )
    assert run.finished(1) == {POINTS[0].id, POINTS[2].id}
    assert run.finished(2) == {POINTS[0].id}
    assert run.finished(3) == set()
    assert len(run.samples()) == 4


# exit codes

ALL = [sample(0), sample(1), sample(2)]
SKIPPED = [sample(i, status="skip") for i in range(3)]


@pytest.mark.parametrize(
    "launches, wanted, told",
    [
        ([[*ALL, end()]], 0, ""),
        ([ALL], 0, ""),  # killed after the last point: nothing is missing
        ([[sample(0), sample(1, status="skip"), sample(2), end()]], 0, ""),
        ([[sample(0), sample(1, status="wrong"), sample(2), end(5)]], 5, "not ok"),
        ([[sample(0), sample(1, status="error"), sample(2), end(3, "no room")]], 3, "no room"),
        ([[sample(0, status="wrong"), sample(1, status="error"), end(3, "no room")]], 5, "not ok"),
        ([[*SKIPPED, end()]], 3, "every point was skipped"),
        ([], 4, "no launch has begun"),
        ([[]], 4, "launch-001.jsonl has no end record"),
        ([[sample(0)]], 4, "launch-001.jsonl has no end record"),
        ([[sample(0), end(4, "rank 1 was lost")]], 4, "rank 1 was lost"),
        ([[sample(0), end(2, "no such device")]], 2, "no such device"),
        ([[sample(0), end(3, "could not start")]], 3, "could not start"),
        ([[sample(0), end(0)]], 3, "2 point(s) are not measured yet"),  # it says that it is done, and is not
        ([[sample(0)], [sample(1), sample(2), end()]], 0, ""),  # killed, then resumed to the end
        ([[sample(0), end(4, "rank 1 was lost")], [sample(1), sample(2), end()]], 0, ""),
        ([[sample(0), end(3, "a")], [sample(1), end(4, "b")]], 4, "b"),
        ([[sample(0), end(4, "a")], [sample(1), end(3, "b")]], 3, "b"),  # the newest launch tells what is in the way
    ],
)  # fmt: skip
def test_exit_codes(tmp_path, launches, wanted, told):
    found, reason = code(*launches, path=tmp_path)
    assert found == wanted
    assert told in reason and bool(reason) == bool(wanted)


@pytest.mark.parametrize(
    "launches, wanted",
    [
        ([[*ALL, end()]], True),  # the second repetition is left
        ([[sample(0), end()]], True),
        ([[sample(0), sample(1, status="wrong"), sample(2), end(5)]], True),
        ([[*ALL, end()], [*(sample(i, launch=2) for i in range(3)), end()]], False),
        ([[*ALL, end()], [sample(0, launch=2), end(4, "rank 1 was lost")]], False),
        ([[sample(0), sample(1, status="error"), end(3)]], False),
        ([[sample(0)]], False),  # killed
        ([], False),
    ],
)  # fmt: skip
def test_a_run_goes_on_where_its_newest_launch_came_to_its_end(tmp_path, launches, wanted):
    path = run_of(tmp_path / "run", *launches, repetitions=2)
    assert goes_on(load_run(path)) is wanted
    done = subprocess.run(
        [sys.executable, "-m", "commbench", "status", "--goes-on", path], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0 if wanted else 1, "", "")


def test_wrong_data_outrank_a_kill_and_a_hang(tmp_path):
    assert code([sample(0, status="wrong")], path=tmp_path / "killed")[0] == 5
    assert code([sample(0, status="wrong"), end(4, "rank 1 was lost")], path=tmp_path / "hung")[0] == 5


def test_a_kill_outranks_an_error(tmp_path):
    assert code([sample(0, status="error")], path=tmp_path) == (4, "launch-001.jsonl has no end record: it was killed")


def test_a_hang_after_points_that_were_skipped_is_a_hang(tmp_path):
    assert code([sample(0, status="skip"), end(4, "rank 1 was lost")], path=tmp_path / "hung") == (4, "rank 1 was lost")
    assert code([sample(0, status="skip")], path=tmp_path / "killed")[0] == 4
    assert code([sample(0, status="skip"), end(3, "could not start")], path=tmp_path / "failed") == (
        3,
        "could not start",
    )


def test_a_launch_killed_earlier_does_not_hide_how_the_resumed_one_ended(tmp_path):
    assert code([sample(0)], [sample(1), sample(2, status="error"), end(3, "no room")], path=tmp_path) == (3, "no room")


def test_a_status_nobody_knows_is_no_pass(tmp_path):
    assert code([sample(0), sample(1, status="fine"), sample(2), end()], path=tmp_path)[0] == 3


def test_every_repetition_has_to_be_complete(tmp_path):
    first, second = [*ALL, end()], [replace(s, launch=2) for s in ALL]
    assert code(first, [*second, end()], path=tmp_path / "whole", repetitions=2)[0] == 0
    assert code(first, second[:2], path=tmp_path / "cut", repetitions=2)[0] == 4
    assert code(first, path=tmp_path / "half", repetitions=2)[0] == 3


def test_a_torn_line_and_a_resume_end_in_a_pass(tmp_path):
    path = run_of(tmp_path, [sample(0)])
    with open(path / "launch-001.jsonl", "ab") as file:
        file.write(json.dumps(sample(1).to_json()).encode()[:100])
    run = load_run(path)
    assert exit_code(run)[0] == 4 and run.finished(1) == {POINTS[0].id}
    journal = Journal(path / "launch-002.jsonl")
    for record in (HEADER, sample(1).to_json(), sample(2).to_json(), end()):
        journal.write(record)
    journal.close()
    run = load_run(path)
    assert exit_code(run) == (0, "") and len(run.samples()) == 3


# the lock


HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_run_whose_lock_is_held_is_running_until_its_holder_dies(tmp_path):
    path = run_of(tmp_path, [sample(0, status="wrong")])
    assert not is_running(path)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path / "lock"], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    assert is_running(path)
    assert exit_code(load_run(path)) == (3, "still running")
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    assert not is_running(path)
    assert exit_code(load_run(path))[0] == 5


def test_looking_does_not_hold_the_lock(tmp_path):
    path = run_of(tmp_path)
    (path / "lock").touch()
    assert not is_running(path) and not is_running(path)
    with open(path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert is_running(path)


def test_a_run_of_somebody_else_can_be_looked_at(tmp_path, monkeypatch):
    """Read permission is enough: a finished run that one cannot write to is not running."""
    path = run_of(tmp_path, [*ALL, end()])
    (path / "lock").touch(0o444)
    os.chmod(path, 0o755)
    monkeypatch.chdir(path)
    stranger = os.geteuid() == 0
    if stranger:
        os.seteuid(65534)
    try:
        running = is_running(type(path)("."))
    finally:
        if stranger:
            os.seteuid(0)
    assert not running


# which run


def test_the_newest_run_is_the_one_whose_plan_is_newest(tmp_path):
    for age, name in ((30, "b"), (10, "a"), (20, "c")):
        run_of(tmp_path / name)
        when = (tmp_path / name / "plan.json").stat().st_mtime - age
        os.utime(tmp_path / name / "plan.json", (when, when))
    (tmp_path / "no-run").mkdir()
    assert newest_run(tmp_path) == tmp_path / "a"
    assert newest_run(tmp_path / "b") == tmp_path / "b"


@pytest.mark.parametrize("name", ["", "nothing", "no-run"])
def test_where_there_is_no_run_it_is_told(tmp_path, name):
    (tmp_path / "no-run").mkdir()
    with pytest.raises(UsageError, match="is no run and holds none"):
        newest_run(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        {"samples_us": ["a", None]}, {"samples_us": []}, {"samples_us": [0, 0]}, {"samples_us": [-5.0]},
        {"samples_us": [float("1e300") * 1e300]}, {"samples_us": 7}, {"launch": "x"}, {"status": "<b>x"},
    ],
)  # fmt: skip
def test_values_that_cannot_be_a_measurement_are_counted_and_not_believed(change):
    line = Sample(Point("all_reduce", "gloo", 8), 1, "", samples_us=(1.0,)).to_json()
    assert Sample.from_json(line).samples_us == (1.0,)
    with pytest.raises(TypeError):
        Sample.from_json(line | change)
