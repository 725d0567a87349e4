"""An entry is used where a test of its benchmark with its parameters is; a published one may name only some of them."""

import json

import pytest

from pytest_roofline.baselines.pruning import PlannedTest, read_plan, unused
from pytest_roofline.core.errors import BadFile

MIB = 2**20


def idle(entries, *planned):
    tests = [PlannedTest(benchmark, parameters) for benchmark, parameters in planned]
    return [(one.entry.label, one.benchmark_known) for one in unused(entries, tests)]


def test_an_entry_is_used_by_a_test_of_its_benchmark_and_parameters(make):
    assert idle([make.measured()], ("memcpy_d2d", {"size_bytes": 64 * MIB})) == []


def test_an_entry_without_its_benchmark_is_unused(make):
    assert idle([make.measured()], ("memcpy_h2d", {"size_bytes": 64 * MIB})) == [("memcpy_d2d[64MiB]", False)]


@pytest.mark.parametrize("parameters", [{}, {"size_bytes": MIB}, {"size_bytes": 64 * MIB, "dtype": "f"}])
def test_an_entry_whose_benchmark_has_other_parameters_is_unused_too(make, parameters):
    assert idle([make.measured()], ("memcpy_d2d", parameters)) == [("memcpy_d2d[64MiB]", True)]


@pytest.mark.parametrize(("value", "used"), [(1, True), (1.0, False), (True, False), ("1", False)])
def test_one_and_true_and_a_text_are_different_parameters(make, value, used):
    entry = make.measured(key=make.key(parameters={"n": 1}))
    assert (idle([entry], ("memcpy_d2d", {"n": value})) == []) == used


def test_the_order_of_parameters_does_not_matter(make):
    entry = make.measured(key=make.key(parameters={"a": 1, "b": 2}))
    assert idle([entry], ("memcpy_d2d", {"b": 2, "a": 1})) == []


def test_every_measurement_of_a_test_that_there_is_is_used(make):
    entry = make.measured(key=make.key(name="second"))
    assert idle([entry], ("memcpy_d2d", {"size_bytes": 64 * MIB})) == []


@pytest.mark.parametrize("kind", ["threshold", "reference"])
@pytest.mark.parametrize(
    ("parameters", "used"), [({}, True), ({"dtype": "f"}, True), ({"size_bytes": MIB}, False), ({"other": 1}, False)]
)
def test_a_published_entry_is_used_where_what_it_names_is_there(make, kind, parameters, used):
    entry = make.published(kind, parameters=parameters)
    tests = [("memcpy_d2d", {"size_bytes": 4, "dtype": "g"}), ("memcpy_d2d", {"size_bytes": 8, "dtype": "f"})]
    assert (idle([entry], *tests) == []) == used


@pytest.mark.parametrize("kind", ["threshold", "reference"])
def test_a_published_entry_that_a_program_made_is_never_listed(make, kind):
    assert idle([make.published(kind, provenance={"made_by": "a program"}), make.published(kind)]) == [
        ("memcpy_d2d", False)
    ]


def test_without_tests_everything_is_unused(make):
    assert idle([make.measured(), make.published()]) == [("memcpy_d2d[64MiB]", False), ("memcpy_d2d", False)]


def test_a_plan_is_read_line_by_line(tmp_path):
    path = tmp_path / "plan.jsonl"
    lines = [{"benchmark": "a", "parameters": {}}, {"benchmark": "b", "parameters": {"n": 1}, "id": "x"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_plan(path) == [PlannedTest("a", {}), PlannedTest("b", {"n": 1})]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("{\n", "line 1 is not JSON"),
        ('{"benchmark": "a", "parameters": {}}\n[]\n', "line 2 is a list; expected an object"),
        ('{"parameters": {}}\n', "line 1 lacks a benchmark or parameters"),
        ('{"benchmark": "a"}\n', "line 1 lacks a benchmark or parameters"),
        ('{"benchmark": 1, "parameters": {}}\n', "line 1 lacks a benchmark or parameters"),
    ],
)
def test_a_plan_that_cannot_be_understood_is_refused(tmp_path, text, sentence):
    path = tmp_path / "plan.jsonl"
    path.write_text(text)
    with pytest.raises(BadFile, match=sentence):
        read_plan(path)
