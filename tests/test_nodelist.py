"""Node lists are read as Slurm reads them, or refused: a misread list makes a world of the wrong nodes."""

import shutil
import subprocess
import time
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commbench.errors import UsageError
from commbench.launch.nodelist import expand_nodelist

fixed = settings(derandomize=True, database=None, deadline=None, max_examples=200)


KNOWN = {
    "linux[1,2]": ["linux1", "linux2"],  # split at the comma by others: Lightning-AI/pytorch-lightning#14896
    "alpha,beta,gamma": ["alpha", "beta", "gamma"],  # Lightning-AI/pytorch-lightning#5160
    "nodeA,nodeB[001,003],nodeC": ["nodeA", "nodeB001", "nodeB003", "nodeC"],  # NVIDIA-NeMo/Megatron-Bridge#3807
    "node1": ["node1"],
    "n[008-012]": ["n008", "n009", "n010", "n011", "n012"],
    "n[8-12]": ["n8", "n9", "n10", "n11", "n12"],
    "n[098-101]": ["n098", "n099", "n100", "n101"],
    "n[98-101]": ["n98", "n99", "n100", "n101"],
    "n[0-3]": ["n0", "n1", "n2", "n3"],
    "n[00-3]": ["n00", "n01", "n02", "n03"],
    "n[9-010]": ["n9", "n10"],
    "n[01-1]": ["n01"],
    "n[7]": ["n7"],
    "n[1-2,5,10-11]": ["n1", "n2", "n5", "n10", "n11"],
    "a[1-2]b[3-4]": ["a1b3", "a1b4", "a2b3", "a2b4"],
    "a[1-2][3-4]": ["a13", "a14", "a23", "a24"],
    "[1-3]": ["1", "2", "3"],
    "gpu-a_1.cluster.org,b": ["gpu-a_1.cluster.org", "b"],
    "a,n[1-2],b,m[03-04]": ["a", "n1", "n2", "b", "m03", "m04"],
    "n[1,1]": ["n1", "n1"],
}

# Slurm writes none of these; what its own tool makes of them differs.
BEYOND_SLURM = {"n[1-3]-ib": ["n1-ib", "n2-ib", "n3-ib"], " n[1-2] ": ["n1", "n2"], "a, b": ["a", "b"]}

MALFORMED = [
    "", " ", ",", "node[01-", "node01-]", "node[", "node]", "node[]", "node[,]", "node[1,]", "node[,1]", "node[1-]",
    "node[-1]",
    "node[1-2-3]", "node[a-b]", "node[a]", "node[1-x]", "node[3-1]", "node[1..3]", "node[[1-2]]", "node[1[2]]",
    "]1[", "a,,b", ",a", "a,",
    "n[1-2],", "a b", "a;b", "a/b", "a:b", "n[1-2]x y", "n{1-2}", "n(1)", "a\nb", "n\u0663", "n[\u0661-\u0663]",
    "$(hostname)", "../x", "n[1-2]!",
    "n[1-99999999]", "n[0-9999]m[0-9999]", "n[" + "9" * 5000 + "]", "n[0-" + "9" * 5000 + "]",
]  # fmt: skip


@pytest.mark.parametrize("text", [*KNOWN, *BEYOND_SLURM])
def test_known_lists(text):
    assert expand_nodelist(text) == (KNOWN | BEYOND_SLURM)[text]


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_list_is_a_usage_error_that_says_what_to_do(text):
    with pytest.raises(UsageError, match="is malformed.*MASTER_ADDR") as caught:
        expand_nodelist(text)
    assert repr(text) in str(caught.value)


def compressed(numbers, width):
    """Bracket text of sorted numbers, as Slurm writes it: runs as ranges, padded to `width` digits."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    spelled = [[str(number).zfill(width) for _, number in run] for run in runs]
    return ",".join(run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in spelled)


prefixes = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z-]", fullmatch=True)
groups = st.tuples(prefixes, st.sets(st.integers(0, 3000), min_size=1, max_size=40), st.integers(1, 5))


@fixed
@given(st.lists(st.one_of(prefixes, groups), min_size=1, max_size=6))
def test_compress_then_expand(parts):
    text, names = [], []
    for part in parts:
        if isinstance(part, str):
            text.append(part)
            names.append(part)
        else:
            prefix, numbers, width = part
            text.append(f"{prefix}[{compressed(sorted(numbers), width)}]")
            names += [f"{prefix}{number:0{width}d}" for number in sorted(numbers)]
    assert expand_nodelist(",".join(text)) == names


@fixed
@given(
    prefixes,
    st.sets(st.integers(0, 20), min_size=1, max_size=9),
    prefixes,
    st.sets(st.integers(0, 20), min_size=1, max_size=9),
)
def test_two_dimensions_are_a_product_with_the_last_running_fastest(first, rows, second, columns):
    text = f"{first}[{compressed(sorted(rows), 2)}]{second}[{compressed(sorted(columns), 1)}]"
    assert expand_nodelist(text) == [f"{first}{r:02d}{second}{c}" for r in sorted(rows) for c in sorted(columns)]


@fixed
@given(st.text(st.sampled_from("ab019,-[] \n.]["), max_size=14))
def test_any_text_is_a_list_of_names_or_a_usage_error(text):
    try:
        names = expand_nodelist(text)
    except UsageError:
        return
    assert names and all(name and not set(name) & set(",[] \n") for name in names)
    assert text.count("[") == text.count("]")


@pytest.mark.parametrize(
    "text", ["node[0001-4096]", "n[" + ",".join(str(2 * i) for i in range(2000)) + "]", "r[01-40]n[01-32]"]
)
def test_more_than_a_thousand_nodes_within_50_ms(text):
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        names = expand_nodelist(text)
        took.append(time.perf_counter() - begin)
    assert len(names) == len(set(names)) > 1000
    assert min(took) < 0.05


def test_a_long_malformed_list_is_refused_as_fast():
    begin = time.process_time()
    with pytest.raises(UsageError):
        expand_nodelist("n" * 50_000 + "!")
    with pytest.raises(UsageError):
        expand_nodelist("n[1-2]" * 30)  # 2^30 names
    assert time.process_time() - begin < 0.5


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="no scontrol here to compare with")
def test_scontrol_expands_the_same():
    for text, names in KNOWN.items():
        done = subprocess.run(["scontrol", "show", "hostnames", text], capture_output=True, text=True, timeout=30)
        if done.returncode:
            pytest.skip(f"scontrol does not work here: {done.stderr.strip()}")
        assert done.stdout.split() == names
