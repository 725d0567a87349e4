"""The program that counts mutants: which functions two trees share, and what it prints of them."""

from pathlib import Path
from types import FunctionType

import pytest


@pytest.fixture(scope="module")
def mutants(program):
    return program("mutants")


def write(tree, path, text):
    path = tree / "plugin/pytest_roofline" / path
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_function_is_the_same_in_another_folder_with_other_words_above_it(mutants, tmp_path):
    write(
        tmp_path / "a",
        "judging/stats.py",
        'class A:\n    def f(self):\n        """Two."""\n        return 1 + 1\n',
    )
    write(
        tmp_path / "b",
        "core/other.py",
        "class A:\n    def f(self):\n        # A reason.\n        return 1 + 1\n",
    )
    write(tmp_path / "c", "core/other.py", "class A:\n    def f(self):\n        return 1 + 2\n")
    mutant = {"function": "A.f", "digest": mutants.functions(tmp_path / "a")["A.f"][0].digest}
    ((_, function),) = mutants.present(tmp_path / "b", [mutant])
    assert FunctionType(function.compiled("return 1 - 1"), {})(None) == 0
    assert mutants.present(tmp_path / "c", [mutant]) == []


def test_the_report_counts_what_was_tried_in_both_trees(mutants):
    one = {"area": "timing", "module": "log", "function": "f", "was": "a | b", "now": "a & b"}
    ends = [
        ("killed", "timeout"),
        ("killed", "survived"),
        ("unsettled", "killed"),
        ("killed", "gone"),
    ]
    tried = [one | {"before": before, "after": after} for before, after in ends]
    lines = mutants.report({"seed": 1, "before": "abc", "after": "def"}, tried).splitlines()
    assert "| **all** | 2 | 2 (100%) | 1 (50%) |" in lines
    assert "| log | 2 | 2 (100%) | 1 (50%) |" in lines
    assert lines[-1] == r"| log | `f` | `a \| b` | `a & b` | killed |"


def test_the_design_has_the_line_that_the_stored_results_give(mutants):
    header, *tried = mutants.load()
    design = Path(__file__).parents[2] / "docs/authors/design.md"
    assert f"\n{mutants.line(header, tried)}\n" in design.read_text(encoding="utf-8")
