"""Outputs of other tools held against profiles: what people asked in public whether it was good."""

import re
from pathlib import Path

import pytest

from commbench.acceptance.compare import compare
from commbench.acceptance.judge import judge
from commbench.acceptance.profile import load_profile
from commbench.acceptance.which import which
from commbench.errors import MeasureError
from commbench.importers.found import Given
from commbench.importers.read import read_file
from commbench.importers.runs import runs_of, write_run
from commbench.results.store import load_run

CASES = Path(__file__).parent / "data" / "cases"
H100, H800, A100 = (load_profile(name) for name in ("h100-8x400g", "h800-8x400g", "a100-8x200g"))


def imported(folder, number, change=lambda text: text):
    """The runs of a case, its text changed."""
    (path,) = CASES.glob(f"{number}-*")
    copy = folder / path.name
    copy.write_text(change(path.read_text(errors="replace")))
    drafts = runs_of([read_file(copy, Given())], repeats=False)
    for n, draft in enumerate(drafts):
        write_run(draft, folder / str(n), ["commbench", "import"])
    return [load_run(folder / str(n)) for n in range(len(drafts))]


def judged(folder, number, profile=H100, change=lambda text: text):
    (run,) = imported(folder, number, change)
    return judge(run, profile)


def words(told) -> dict:
    return {v.rule: v.word for v in told.verdicts if v.word != "skip"}


def until(size):
    """The table without the rows beyond a size, as if the sweep had ended there."""
    return lambda text: "".join(
        line for line in text.splitlines(keepends=True)
        if not (row := re.match(r"(?:\[1,0\]<stdout>:)?\s+(\d+)\s+\d+\s+float", line)) or int(row[1]) <= size
    )  # fmt: skip


def test_a_healthy_h100_whose_printed_average_is_157_passes(tmp_path):
    told = judged(tmp_path, "12")
    assert words(told) == {"all_reduce in a node": "pass", "no dip in a node": "pass"} and told.code == 0
    assert which(load_run(tmp_path / "0"), [H100, H800]).name == H100.name


@pytest.mark.parametrize("size", [256 << 20, 2 << 30])
def test_where_its_sweep_ends_before_the_plateau_the_answer_is_error(tmp_path, size):
    told = judged(tmp_path, "12", change=until(size))
    assert words(told)["all_reduce in a node"] == "error" and told.code == 3


@pytest.mark.parametrize(
    "number, rule, measured",
    [("33", "all_reduce over 3 nodes and more", 5.31), ("81", "all_to_all over nodes", 34.17 * 8 / 15 / 4.5)],
)
def test_a_bad_fabric_fails_with_what_is_expected_and_what_to_look_at(tmp_path, number, rule, measured):
    told = judged(tmp_path, number)
    (verdict,) = [v for v in told.verdicts if v.rule == rule]
    assert verdict.word == "fail" and told.code == 1 and verdict.measured < 0.4 * verdict.expected
    things = "\n".join(verdict.look_at)
    assert "NICs of each node are in use" in things and "GPUDirect" in things and "PIX or PXB" in things


def test_deepep_at_a_tenth_of_what_the_network_does(tmp_path):
    internode, intranode, other = imported(tmp_path, "71")
    told = judge(internode, H100)
    assert words(told) == {"MoE dispatch between nodes, DeepEP": "fail", "MoE combine between nodes, DeepEP": "fail"}
    verdict = next(v for v in told.verdicts if v.word == "fail")
    assert (verdict.measured, verdict.expected) == (4.47, 43) and "NICs of each node" in verdict.look_at[0]
    assert verdict.again == "" and judge(other, H100).word == "fail"
    assert words(judge(intranode, H100)) == {}


def test_published_tables_of_deepep_are_those_of_an_h800(tmp_path):
    told = judged(tmp_path, "32", H800)
    assert words(told) == {"MoE dispatch between nodes, DeepEP": "pass", "MoE combine between nodes, DeepEP": "pass"}
    assert told.code == 0 and {v.ranks for v in told.verdicts if v.word == "pass"} >= {16, 64}


def test_a_figure_that_no_machine_of_this_make_reaches(tmp_path):
    assert judged(tmp_path, "12", H800).word == "error"  # 476 on links of 200


def test_one_rank_is_named_as_the_reason(tmp_path):
    with pytest.raises(MeasureError, match="run of 1 rank"):
        judged(tmp_path, "37")


def test_topologies_tell_the_machine(tmp_path):
    for n, (number, links) in enumerate({"26": 18, "29": 18, "82": 8}.items()):
        (tmp_path / str(n)).mkdir()
        told = judged(tmp_path / str(n), number)
        assert words(told) == {"NVLinks of each GPU": "pass" if links == 18 else "fail"}


def test_copies_between_gpus_by_nvbandwidth(tmp_path):
    told = judged(tmp_path, "31", A100)
    assert words(told) == {"copies between GPUs, by writes": "pass"} and told.counts["pass"] == 56
    (tmp_path / "slow").mkdir()
    told = judged(tmp_path / "slow", "31", A100, lambda text: text.replace("276.", "137.", 1))
    (slow,) = [v for v in told.verdicts if v.word == "fail"]
    assert slow.subject == "gpu 0 <- gpu 1" and slow.again == ""


def test_a_nic_by_ib_write_bw(tmp_path):
    told = judged(tmp_path, "07", A100)
    (verdict,) = [v for v in told.verdicts if v.rule == "NICs by ib_write_bw"]
    assert verdict.word == "pass" and verdict.measured == pytest.approx(25.225, abs=0.001)
    assert verdict.subject.startswith("nic ")
    (tmp_path / "other").mkdir()
    assert judged(tmp_path / "other", "07", H100).word == "fail"  # 200 Gb/s where 400 was bought


def test_the_nodes_of_a_profile_stand_above_those_that_an_import_assumes(tmp_path):
    """16 GPUs are two nodes of 8, but four trays of a GB200."""
    told = judged(tmp_path, "50", load_profile("gb200-nvl72"))
    assert any("4 a node" in note for note in told.notes)
    (tmp_path / "h100").mkdir()
    assert any("8 a node" in note for note in judged(tmp_path / "h100", "50", H100).notes)


def test_two_settings_of_one_site_are_compared_size_by_size(tmp_path):
    """A floor of 100 ms against the same fabric without it."""
    (slow,) = imported(tmp_path, "81")
    (tmp_path / "good").mkdir()

    def faster(text):
        def half(m):
            time, size = float(m[3]) / 4, int(m[1])
            return f"{m[1]}{m[2]}{time:.2f}  {size / time / 1e3:.2f}  {size / time / 1e3 * 15 / 16:.2f}"

        return re.sub(r"(\d+)(\s+\d+\s+float\s+none\s+-1\s+)(\S+)\s+\S+\s+\S+", half, text)

    (good,) = imported(tmp_path / "good", "81", faster)
    found = compare(good, slow)
    assert found.label == "within one launch only" and found.code == 0
    out_of_place = [c for c in found.points if "in place" not in c.what]
    assert len(out_of_place) == 7 and all(c.ratio == pytest.approx(4, rel=1e-3) for c in out_of_place)
