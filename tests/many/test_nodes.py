"""Lists of nodes in the notation of Slurm and ClusterShell, and the nodes of a list that are silent."""

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.many.nodes import MOST_NODES, is_among, parse_nodes

NAMES = st.from_regex(r"[a-z][a-z-]{0,6}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("gpu[001-003]", "gpu001 gpu002 gpu003"),
        ("gpu[9-11]", "gpu9 gpu10 gpu11"),
        ("gpu[098-101,200],login1", "gpu098 gpu099 gpu100 gpu101 gpu200 login1"),
        ("rack[1-2]n[01,03]", "rack1n01 rack1n03 rack2n01 rack2n03"),
        ("n[0-6/2]", "n0 n2 n4 n6"),
        ("a1, a1\na2 ", "a1 a2"),
        ("gpu[1-2]-ib", "gpu1-ib gpu2-ib"),
    ],
)
def test_a_list_is_written_out_in_order_and_each_node_once(text, nodes):
    assert tuple(nodes.split()) == parse_nodes(text, "--nodes")


@given(NAMES, st.integers(0, 400), st.integers(0, 60), st.integers(1, 5))
def test_a_range_is_its_numbers_each_with_the_digits_of_the_first(name, first, more, digits):
    numbers = [str(number).zfill(digits) for number in range(first, first + more + 1)]
    # A first number with more digits than asked for sets the number of digits.
    last = str(first + more)
    text = f"{name}[{str(first).zfill(digits)}-{last}]"
    assert tuple(f"{name}{number}" for number in numbers) == parse_nodes(text, "--nodes")


@given(st.lists(st.tuples(NAMES, st.integers(0, 99)), min_size=1, max_size=20))
def test_names_joined_by_commas_are_these_names(pairs):
    names = [f"{name}{number:02}" for name, number in pairs]
    assert tuple(dict.fromkeys(names)) == parse_nodes(",".join(names), "--nodes")


@given(st.text(alphabet="gpu[]0123456789-,/ !*", max_size=30))
def test_any_text_is_a_list_of_limited_length_or_refused(text):
    nodes = ()
    with contextlib.suppress(BadInput):
        nodes = parse_nodes(text, "--nodes")
    assert len(nodes) <= MOST_NODES
    assert all(re.fullmatch(r"[\w-]+", node) for node in nodes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu[1-999999999]", "--nodes names 999999999 nodes; expected 1 to 100,000"),
        ("a[1-9999]b[1-9999]c[1-9999]", "--nodes names 999700029999 nodes"),
        ("gpu[001-050", "--nodes has 'gpu[001-050'; expected names such as gpu[001-050]"),
        ("gpu[5-1]", "--nodes has the range '5-1' in 'gpu[5-1]'; expected FIRST-LAST"),
        ("gpu[1-5/0]", "--nodes has the range '1-5/0'"),
        ("", "--nodes names 0 nodes"),
        ("gpu[" * 5000, "--nodes has 'gpu["),
    ],
)
def test_a_list_that_cannot_be_is_refused_at_once(text, words):
    with pytest.raises(BadInput) as error:
        parse_nodes(text, "--nodes")
    assert str(error.value).startswith(words)


def test_a_file_has_lists_and_remarks_on_its_lines(tmp_path):
    path = tmp_path / "nodes"
    path.write_text("# of the new rack\ngpu[1-2]\n\nlogin1, login2\n")
    assert parse_nodes(f"@{path}", "--nodes") == ("gpu1", "gpu2", "login1", "login2")
    with pytest.raises(BadFile, match="gone does not exist"):
        parse_nodes(f"@{tmp_path / 'gone'}", "--nodes")


def test_a_node_is_among_names_with_its_domain_or_without():
    names = frozenset({"gpu1", "gpu2.site.org"})
    nodes = ("gpu1", "gpu1.site.org", "gpu2.site.org", "gpu3", "gpu2")
    assert [True, True, True, False, False] == [is_among(node, names) for node in nodes]
