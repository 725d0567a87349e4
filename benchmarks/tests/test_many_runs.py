"""The program that plants faults in thousands of run files."""

import itertools
import json

import pytest


@pytest.fixture(scope="module")
def many_runs(program):
    return program("many_runs")


@pytest.fixture(scope="module")
def fleets(program, many_runs):
    return program("many.fleets")


@pytest.fixture(scope="module")
def faults(program, many_runs):
    return program("many.faults")


def test_files_are_run_files_with_the_planted_faults(many_runs, fleets, program, tmp_path):
    from pytest_roofline.baselines.runs import read_run

    fault = fleets.Fault("slow GPU", ("memory",), 5.0, node=1, gpu=0)
    fleets.write(fleets.Plan(2, 2, 1, seed=1, faults=(fault,)), tmp_path)
    assert 4 == len(list(tmp_path.iterdir()))
    slow, fine = (read_run(tmp_path / f"node00{node}-gpu0-night00.jsonl") for node in (1, 0))
    ratios = {
        one.label: one.median_s / other.median_s
        for one, other in zip(slow.measurements, fine.measurements, strict=True)
    }
    assert {label for label, ratio in ratios.items() if ratio > 3} == {
        label for label in ratios if label.startswith(("memcpy_d2d", "stream"))
    }


def test_a_fault_counts_only_at_the_right_level_and_in_the_right_class(faults, fleets):
    plan = fleets.Plan(10, faults=fleets.planted(10, 25))

    def finding(level, part, *kinds):
        return {"level": level, "part": part, "slow": [{"kind": kind} for kind in kinds]}

    right = finding("gpu", "GPU-00000001-0002", "memory", "arithmetic", "latency")
    link = finding("link", "node005 GPU 1 – GPU 3", "peer link")
    assert faults.score_fleet(plan, {"findings": [right, link]}) == faults.Score(
        ("slow GPU", "slow link"), ()
    )
    for wrong in (
        finding("gpu", "GPU-00000001-0002", "memory"),
        finding("gpu", "GPU-00000001-0002", "memory", "arithmetic", "host link"),
    ):
        assert faults.score_fleet(plan, {"findings": [wrong]}).found == ()
    assert faults.score_fleet(plan, {"findings": [finding("gpu", "GPU-7", "memory")]}).invented == (
        "gpu GPU-7",
    )


def test_a_step_counts_only_in_the_right_night_and_on_all_devices(faults, fleets):
    plan = fleets.Plan(1, 2, 25, faults=fleets.planted(1, 25))

    def change(day, units):
        after = {"started": f"2026-01-{day:02}T02:00:00+00:00"}
        return {
            "kind": "step",
            "slower": True,
            "units": units,
            "after": after,
            "found": [{"label": "matmul"}],
        }

    assert faults.score_history(plan, {"changes": [change(20, ["a", "b"])]}).found == ("step",)
    for wrong in (change(21, ["a", "b"]), change(20, ["a"])):
        assert len(faults.score_history(plan, {"changes": [wrong]}).invented) == 1


def test_the_page_has_time_memory_and_what_was_found(
    many_runs, fleets, program, monkeypatch, tmp_path
):
    commands = program("many.commands")
    told = {"fleet": {"findings": []}, "history": {"changes": []}}
    # The first of three, and the last, run beside other programs.
    seconds = itertools.cycle([1.9, 1.9, 1.5, 1.5, 2.4, 2.4])

    def roofline(name, runs):
        assert any(runs.iterdir())
        return commands.Done(json.dumps(told[name]), 0, 2.0, next(seconds), 100_000_000)

    monkeypatch.setattr(many_runs, "roofline", roofline)
    monkeypatch.setattr(
        many_runs, "peer", lambda kind, runs: commands.Done("", 0, 4.0, 3.0, 50_000_000)
    )
    judged = json.dumps({"sentence": "no slowdown above 3 %. PASSED"})
    monkeypatch.setattr(
        many_runs, "rollout", lambda folder, nodes: commands.Done(judged, 0, 9.0, 8.0, 90_000_000)
    )
    monkeypatch.setattr(
        many_runs, "write", lambda plan, folder: (folder / "a.jsonl").write_text("")
    )
    page = tmp_path / "page.md"
    assert (
        many_runs.main(
            ["--files", "400", "4000", "--clean", "3", "--rollouts", "4", "-o", str(page)]
        )
        == 0
    )
    text = page.read_text()
    assert (
        "On 4,000 run files `roofline fleet` finds 0 of 3 planted faults in 1.5 s of CPU and "
        "`roofline history` finds 0 of 2 planted faults in 1.5 s of CPU. **All 8 goals are reached.**"
        in text
    )
    assert (
        "| `roofline fleet` on 4,000 files: at most 4 s of CPU and 300 MB | 1.5 s, 100 MB | reached |"
        in text
    )
    assert "| `roofline fleet` | 4,000 | 2.0 | 1.5 | 100 | 0/3 | 0 |" in text
    assert "`roofline fleet` on 4,000 files takes 0.50 times the CPU time of `json.loads`" in text
    assert "`roofline history`: 0 of 3, 0.0 to 70.8 %" in text
