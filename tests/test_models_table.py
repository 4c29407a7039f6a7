"""Series are read whole: what is told apart, what is left out and counted, and which file is refused with what sentence."""

import io
import shutil
from dataclasses import replace

import numpy as np
import pytest
from measured import SIZES, line_run, point, sample, write_csv, write_run

from commbench.errors import UsageError
from commbench.models.table import joined, read_series, without_outpaced
from commbench.results.export import to_csv
from commbench.results.records import Sample
from commbench.results.store import load_run


def test_a_run_gives_one_time_per_point_and_launch(tmp_path):
    run = line_run(tmp_path / "run", launches=3, launch_sd=0.1)
    (table,) = read_series([run])
    assert (len(table), table.points, table.launches) == (3 * len(SIZES), len(SIZES), 3)
    first = load_run(run).samples()[0]
    row = (table.launch == 1) & (table.size_bytes == first.point.size_bytes)
    assert table.time_us[row] == np.median(first.samples_us)
    assert table.samples[int(np.flatnonzero(row)[0])] == first.samples_us
    assert table.label["op"] == "all_reduce" and table.label["timing"] == "isolated"


def test_isolated_and_streaming_and_own_and_library_are_different_series(tmp_path):
    run = write_run(
        tmp_path / "run",
        [
            sample(10, 8), sample(10, 8, timing="streaming", batch=20), sample(10, 8, algorithm="own:ring"),
            sample(10, 8, algorithm="ring"), sample(10, 8, backend="mpi"), sample(10, 8, in_place=True),
            sample(10, 8, op="p2p_bw", ranks=2, params={"window": 16}), sample(10, 8, op="p2p_bw", ranks=2, params={"window": 64}),
        ],
    )  # fmt: skip
    tables = read_series([run])
    assert len(tables) == 8 and len({t.name for t in tables}) == 8
    assert tables[0].name == "all_reduce, library, gloo, float32, isolated"
    assert tables[1].name == "all_reduce, library, gloo, float32, streaming x20"


def test_rows_that_are_not_ok_are_left_out_and_counted(tmp_path):
    """A sweep of MoE traffic with one point that failed its check: fitted on emitted bytes without it, and said so."""
    skewed = {"op": "all_to_all_v", "kind": "collective"}
    sent = [sample(20 + 1e-3 * size, size, **skewed, params={"matrix": [[size] * 4] * 4}) for size in SIZES[:8]]
    failed = sample(500.0, SIZES[8], status="wrong", **skewed, params={"matrix": [[1] * 4] * 4})
    lost = sample(0, SIZES[9], status="error", **skewed, params={"matrix": [[2] * 4] * 4})
    (table,) = read_series([write_run(tmp_path / "run", [*sent, failed, lost])])
    assert table.used() == (
        "8 points used, 1 left out because the check found wrong data, 1 left out because it failed"
    )
    assert table.size_bytes.tolist() == SIZES[:8]


def test_a_run_without_a_usable_row_is_refused(tmp_path):
    barrier = Sample(point(0, op="barrier"), 1, "now", samples_us=(1.0, 2.0))
    run = write_run(tmp_path / "run", [barrier, sample(0, 8, status="skip")])
    with pytest.raises(UsageError, match="holds no time to fit: 2 row"):
        read_series([run])


def test_a_tampered_size_is_left_out(tmp_path):
    good = [sample(20, size) for size in (8, 16)]
    (table,) = read_series([write_run(tmp_path / "run", [*good, sample(20, 32, ranks=4, nodes="two")])])
    assert table.used().startswith("2 points used") and table.notes == ("1 line(s) of the run could not be read",)


def test_oversubscribed_ranks_are_noted(tmp_path):
    crowded = Sample(point(8), 1, "now", samples_us=(1.0, 2.0, 3.0), oversubscribed=True)
    (table,) = read_series([write_run(tmp_path / "run", [crowded])])
    assert table.notes == ("ranks shared processor cores: the times hold waiting for a core",)


def test_runs_of_other_ranks_are_further_points_and_repeated_runs_further_launches(tmp_path):
    two, four = line_run(tmp_path / "2", ranks=2, launches=2), line_run(tmp_path / "4", ranks=4, launches=2)
    (table,) = read_series([two, four])
    assert (table.points, table.launches) == (2 * len(SIZES), 2)
    again = line_run(tmp_path / "again", 21.0, ranks=2, launches=2)
    (table,) = read_series([two, again])
    assert (table.points, table.launches) == (len(SIZES), 4)
    assert len(joined(table, table).left_out) == 0


def test_a_copy_is_no_further_launch(tmp_path):
    run = line_run(tmp_path / "run", launches=2)
    with pytest.raises(UsageError, match="run is given twice"):
        read_series([run, tmp_path / "." / "run"])
    copy = shutil.copytree(run, tmp_path / "copy")
    with pytest.raises(UsageError, match="run and .*copy hold the same rows of all_reduce"):
        read_series([run, copy])
    first = write_csv(tmp_path / "a.csv", {s: 20 + s for s in SIZES})
    second = write_csv(tmp_path / "b.csv", {s: 20 + s for s in SIZES[4:]}, launch=7)
    with pytest.raises(UsageError, match="a.csv and .*b.csv hold the same rows"):
        read_series([first, second])


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path):
    for ranks in (2, 4, 8):
        line_run(tmp_path / "campaign" / f"{ranks}", ranks=ranks)
    (table,) = read_series([tmp_path / "campaign"])
    assert sorted(set(table.ranks.tolist())) == [2, 4, 8]
    with pytest.raises(UsageError, match="is given twice"):
        read_series([tmp_path / "campaign", tmp_path / "campaign" / "4"])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_other_delimiters_and_launches_from_zero(tmp_path, delimiter):
    text = "op,ranks,size_bytes,time_us,launch\nall_reduce,8,1024,10.5,0\nall_reduce,8,1024,11,1\n"
    (tmp_path / "t.csv").write_text(text.replace(",", delimiter))
    (table,) = read_series([tmp_path / "t.csv"])
    assert table.launch.tolist() == [0, 1] and table.time_us.tolist() == [10.5, 11]


def test_disturbed_rows_are_noted(tmp_path):
    rows = [replace(sample(20, size), foreign_cores=2.0 if size < 64 else 0.1) for size in SIZES]
    (table,) = read_series([write_run(tmp_path / "run", rows)])
    assert table.notes == (f"3 of {len(SIZES)} rows were disturbed by other programs",)


def test_an_algorithm_is_seen_by_its_whole_name(tmp_path):
    rows = [replace(sample(20, 2**k, algorithm="tree"), algorithm_seen=seen)
            for k, seen in enumerate(("TREE", "NVLSTree", "ring, tree", "NVLS_TREE"), 3)]  # fmt: skip
    (table,) = read_series([write_run(tmp_path / "run", rows)])
    assert table.size_bytes.tolist() == [8, 32]
    assert table.left_out == {"it was not seen to run by the algorithm that it asked for": 2}


def test_the_csv_of_export_reads_as_the_run_does(tmp_path):
    run = line_run(tmp_path / "run", launches=2)
    file = io.StringIO()
    to_csv([*load_run(run).samples(), sample(0, 2**31, status="error")], file)
    (tmp_path / "run.csv").write_text(file.getvalue())
    (of_run,), (of_csv,) = read_series([run]), read_series([tmp_path / "run.csv"])
    assert np.array_equal(of_run.time_us, of_csv.time_us) and np.array_equal(of_run.launch, of_csv.launch)
    assert of_csv.used() == f"{len(SIZES)} points used, 1 left out because it has no result"
    assert of_csv.label["algorithm"] == "library" and of_csv.label["backend"] == "gloo"


def test_published_tables_keep_the_smaller_placement_and_the_other_for_comparison(tmp_path):
    path = tmp_path / "nccl.csv"
    path.write_text(
        "time_us_in_place,collective,dataset,gpus_per_node,nranks,size_bytes,time_us_out_of_place\n"
        "9.5,AllReduce,here,4,8,1024,10.5\n,all_reduce,here,4,8,2048,12\n"
    )
    (table,) = read_series([path])
    assert table.time_us.tolist() == [9.5, 12.0] and table.second_us[0] == 10.5 and np.isnan(table.second_us[1])
    assert table.nodes.tolist() == [2, 2] and table.per_node.tolist() == [4, 4]
    assert table.label == {"op": "all_reduce", "dataset": "here"}


def test_a_file_without_ranks_needs_to_be_told(tmp_path):
    path = tmp_path / "launches.csv"
    path.write_text("collective,size_bytes,launch,median_us\nallgather,8,1,2.5\nallgather,8,2,2.7\n")
    with pytest.raises(UsageError, match="no column ranks or nranks, the number of ranks .or give --ranks"):
        read_series([path])
    (table,) = read_series([path], ranks=2)
    assert table.label["op"] == "all_gather" and table.launch.tolist() == [1, 2] and table.ranks.tolist() == [2, 2]
    assert table.notes == ("no column nodes: all ranks are taken to be on one node",)


HEAD = "op,ranks,size_bytes,time_us\n"


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "has no rows"),
        (HEAD, "has no rows"),
        ("\x00\x01binary\x00\n1,2\n", "has no column op or collective|not a CSV file"),
        ("op,ranks,size_kb,time_us\nall_reduce,8,1,10\n", "no column size_bytes.*'size_kb', whose unit is not taken"),
        ("op,ranks,size_bytes,time_ms\nall_reduce,8,1,10\n", "no column time_us or median_us.*'time_ms'"),
        ("ranks,size_bytes,time_us\n8,1,10\n", "no column op or collective"),
        (HEAD + "all_reduce,8,64K,10\n", "line 2: size_bytes is '64K'; wanted is a whole number above 0"),
        (HEAD + "all_reduce,8,0,10\n", "line 2: size_bytes is '0'"),
        (HEAD + "all_reduce,8,-8,10\n", "line 2: size_bytes is '-8'"),
        (HEAD + "all_reduce,8,8,10\nall_reduce,8,16,-1\n", "line 3: time_us is '-1'; wanted is a time in microseconds"),
        (HEAD + "all_reduce,8,8,0\n", "line 2: time_us is '0'"),
        (HEAD + "all_reduce,8,8,nan\n", "line 2: time_us is 'nan'"),
        (HEAD + "all_reduce,8,8,inf\n", "line 2: time_us is 'inf'"),
        (HEAD + "all_reduce,8,8,1.5ms\n", "line 2: time_us is '1.5ms'"),
        (HEAD + "all_reduce,8,8,\n", "line 2: there is no time"),
        (HEAD + "all_reduce,8,8,10\n\nall_reduce,8,8,10\n", "line 4 repeats line 2 .8 bytes on 8 ranks.; keep one"),
        (HEAD + "all_reduce,0,8,10\n", "line 2: ranks is '0'"),
        (HEAD + "all_reduce,8\n", "line 2: size_bytes is ''"),
        ("op,ranks,nodes,size_bytes,time_us\nall_reduce,2,4,8,1\n", "4 nodes cannot be, with 2 ranks"),
        ("op,ranks,size_bytes,time_us,time_us\nall_reduce,2,8,1,2\n", "two columns time_us"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence) as error:
        read_series([path])
    assert "\n" not in str(error.value)


def test_no_file_no_run_and_bytes_are_refused(tmp_path):
    (tmp_path / "raw").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "empty").mkdir()
    for name, sentence in (
        ("none", "does not exist"),
        ("raw", "not a CSV file"),
        ("empty", "is no run and holds none"),
    ):
        with pytest.raises(UsageError, match=sentence):
            read_series([tmp_path / name])


def test_a_point_that_a_larger_size_outpaces_threefold_is_left_out_and_counted(tmp_path):
    rounded = {2**15: 6348.8, 2**16: 3174.4, 2**17: 564.3, 2**18: 381.9, 2**19: 357.7, 2**20: 378.3, 2**21: 391.5}
    (table,) = read_series([write_csv(tmp_path / "b200.csv", rounded)])
    kept = without_outpaced(table)
    assert kept.size_bytes[0] == 2**17 and "5 points used, 2 left out because a larger size took less" in kept.used()
    assert without_outpaced(kept) is kept


def test_medians_merge_launches_and_select_keeps_rows_together(tmp_path):
    (table,) = read_series([line_run(tmp_path / "run", launches=3, launch_sd=0.2)])
    middle = table.medians()
    assert len(middle) == len(SIZES) and middle.launch.tolist() == [0] * len(SIZES)
    size = SIZES[5]
    assert middle.time_us[5] == np.median(table.time_us[table.size_bytes == size])
    some = table.select(table.size_bytes == size)
    assert len(some) == len(some.samples) == len(some.second_us) == 3
