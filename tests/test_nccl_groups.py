"""NCCL's groups of a step: one split for each list, the oldest destroyed. With stand-ins for torch's calls, as no GPU is here."""

import pytest

torch_world = pytest.importorskip("commbench.world.torch_world")


@pytest.fixture
def world(monkeypatch):
    """Rank 2 of 4, and what it asked torch for."""
    asked = []

    def split_group(split_ranks):
        asked.append(("split", split_ranks))
        mine = next((group for group in split_ranks if 2 in group), None)
        return f"pg {mine}" if mine else None

    monkeypatch.setattr(torch_world.dist, "split_group", split_group)
    monkeypatch.setattr(torch_world.dist, "destroy_process_group", lambda pg: asked.append(("destroy", pg)))
    made = torch_world.TorchWorld.__new__(torch_world.TorchWorld)
    made.backend, made.rank, made.size, made.device, made._made = "nccl", 2, 4, "cuda", {}
    return made, asked


def test_a_list_of_groups_is_one_split_and_is_kept_for_the_sizes_that_follow(world):
    made, asked = world
    group = made.split([[0, 1], [2, 3]])
    assert (group.pg, group.rank, group.size) == ("pg [2, 3]", 0, 2)
    assert made.split([[0, 1], [2, 3]]) is group
    assert asked == [("split", [[0, 1], [2, 3]])]


def test_a_rank_of_no_group_takes_part_in_the_split(world):
    made, asked = world
    assert made.split([[0, 1]]) is None and made.split([[0, 1]]) is None
    assert asked == [("split", [[0, 1]])]


def test_the_oldest_is_destroyed_when_rounds_go_on(world):
    made, asked = world
    most = torch_world._MOST_KEPT
    rounds = [[[0, 1]], *([[n % 2, 2], [n + 10]] for n in range(most))]
    for groups in rounds:
        made.split(groups)
    assert [what for what, _ in asked] == ["split"] * (most + 1), "of the oldest this rank was no part"
    made.split([[1, 2]])
    assert asked[most + 1 :] == [("destroy", "pg [0, 2]"), ("split", [[1, 2]])]
    made.split(rounds[-1])
    assert len(asked) == most + 3 and len(made._made) == most
