"""Kernels of two sides: compared exactly from one process of each, with a second A as their guard."""

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.exact_proposals import propose_exact
from pytest_roofline.cli.main import main

from .conftest import verdicts

HOPPER, CDNA = (f"test_it.py::test_flash[{target}]" for target in ("sm_90", "gfx942"))
FIGURES = {
    "registers": 198,
    "shared_bytes": 98304,
    "serialized_wgmma": 0,
    "instructions": 900,
    "HGMMA": 24,
}
SIDES = (".", ".", "--", "bench")


@pytest.fixture
def compiling(world):
    """The world with two kernels and no times; `compiling.figures` are changes by test and side."""
    world.tests, world.figures = [HOPPER, CDNA], {}
    for test in world.tests:
        world.kernels[test] = lambda side, test=test: FIGURES | world.figures.get((test, side), {})
    return world


def test_every_figure_that_differs_is_listed_and_what_is_worse_is_red(compiling):
    compiling.figures[HOPPER, "B"] = {
        "serialized_wgmma": 24,
        "registers": 168,
        "HGMMA": 24,
        "FFMA": 3,
    }
    answer = compiling.ab("--name=one", *SIDES, status=1)
    assert {"flash[sm_90]": "REGRESSED", "flash[gfx942]": "PASSED"} == verdicts(answer)
    assert "RED: 1 REGRESSED, 1 of 2 no worse" == answer["sentence"]
    row = answer["tests"][0]
    assert (FIGURES, ["serialized_wgmma"], ["registers"]) == (
        row["baseline_figures"], row["worse"], row["better"],
    )  # fmt: skip
    assert ("kernel", HOPPER, "sm_90") == (row["metric"], row["test"], row["target"])
    # One process of each side and a second A, none of which counts for times.
    assert ({"A": 1, "B": 1, "A again": 1}, []) == (dict(compiling.warmed), compiling.calls)
    assert {} == answer["processes"]


def test_both_sides_without_a_difference_are_green_and_their_kernels_become_a_baseline(compiling):
    answer = compiling.ab("--name=same", *SIDES)
    assert "GREEN: 2 of 2 no worse" == answer["sentence"]
    sides = [compiling.run(f"same-{side}") for side in "ab"]
    assert [2, 2] == [len(run.resources) for run in sides]
    assert {"same-a"} == {each.source for each in sides[1].exact}
    assert [(), ("PASSED", "PASSED")] == [
        tuple(each.verdict for each in run.exact) for run in sides
    ]
    entries, left_out = propose_exact([sides[1]])
    assert (2, ()) == (len(entries), left_out)


def test_what_differs_between_two_processes_of_a_is_named_and_not_judged(compiling):
    compiling.figures[HOPPER, "A again"] = {"registers": 200}
    compiling.figures[HOPPER, "B"] = {"registers": 255}
    compiling.figures[CDNA, "B"] = {"registers": 255}
    answer = compiling.ab(*SIDES, status=1)
    assert {"flash[sm_90]": "PASSED", "flash[gfx942]": "REGRESSED"} == verdicts(answer)
    assert [
        "flash[sm_90] is not judged, since two processes of A differ: registers 198 → 200"
    ] == answer["notes"]


def test_a_kernel_that_does_not_compile_on_b_alone_is_failed_and_one_without_a_twin_is_named(
    compiling,
):
    compiling.slow = {("B", HOPPER): "fail"}
    answer = compiling.ab(*SIDES, status=1)
    assert {"test_flash[sm_90]": "FAILED", "flash[gfx942]": "PASSED"} == verdicts(answer)
    assert "B: no such instruction" == answer["tests"][0]["reason"]
    compiling.slow = {("A", HOPPER): "fail"}
    answer = compiling.ab(*SIDES)
    assert ["test_flash[sm_90] fails on A: no such instruction"] == answer["notes"]
    compiling.slow = {("A", HOPPER): "gone"}
    answer = compiling.ab(*SIDES)
    assert ["tests on B only: flash[sm_90]"] == answer["notes"]


def test_what_the_second_a_could_not_compile_cannot_be_told(compiling):
    compiling.slow = {("A again", test): "fail" for test in compiling.tests}
    answer = compiling.ab(*SIDES, status=2)
    assert "GREY: nothing was compared (2 INVALID)" == answer["sentence"]
    assert {"the second process of A did not compile the kernel"} == {
        row["reason"] for row in answer["tests"]
    }


def test_two_values_of_a_parameter_are_compared_by_one_process_and_its_guard(compiling):
    tests = [f"test_it.py::test_flash[sm_90-{warps}]" for warps in (4, 8)]
    compiling.tests = tests
    for test, registers in zip(tests, (128, 255), strict=True):
        compiling.kernels[test] = lambda _, registers=registers: FIGURES | {"registers": registers}
    answer = compiling.ab("param:num_warps=4", "param:num_warps=8", "--", "bench", status=1)
    assert {"flash[sm_90]": "REGRESSED"} == verdicts(answer)
    assert {"A": 1, "A again": 1} == dict(compiling.warmed)


def test_times_and_kernels_of_one_run_stand_in_tables_of_their_own(compiling, tmp_path):
    timed = "test_it.py::test_copy[0]"
    compiling.tests = [timed, HOPPER]
    compiling.slow = {("B", timed): 1.1}
    compiling.figures[HOPPER, "B"] = {"serialized_wgmma": 24}
    comment = tmp_path / "comment.md"
    done = CliRunner().invoke(
        main, ["ab", "--seed=1", f"--markdown={comment}", *SIDES], catch_exceptions=False
    )
    assert 1 == done.exit_code
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["test", "target", "figure", "A", "B", "B", "is", "verdict"] in lines
    assert ["flash[sm_90]", "sm_90", "serialized_wgmma", "0", "24", "worse", "REGRESSED"] in lines
    assert "1 of 1 kernel differ in their resources; triton 3.A → 3.B" in done.stdout
    assert "serialized_wgmma: each of these matrix instructions waits" in done.stdout
    assert "RED: 2 REGRESSED, 0 of 2 fast enough" in done.stdout
    text = comment.read_text(encoding="utf-8")
    assert "| `flash[sm_90]` | sm_90 | serialized_wgmma | 0 | 24 | worse | REGRESSED |" in text
    assert "| `copy[0]` | 1.00 ms |" in text
