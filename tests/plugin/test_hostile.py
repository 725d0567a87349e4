"""Whatever the files that a run is compared with say, its summary, its failures and its report steer nothing."""

from dataclasses import replace

from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.baselines.runs import read_run

from ..cli.test_hostile import made_hostile, steers
from .conftest import ONE

# What a test is found by; without it nothing would be compared.
KEPT = (
    "key",
    "work",
    "hardware",
    "benchmark",
    "metric",
    "parameters",
    "type",
    "device",
    "achieved",
    "outcome",
)


def test_nothing_that_a_baseline_or_an_earlier_run_says_steers_who_reads_this_run(
    desk, make, monkeypatch
):
    text = ONE.format(marks="")
    desk.baseline(text=text)
    path = desk.path / "baselines" / "h100.json"
    known = read_baseline(path)
    write_baseline(
        path,
        replace(known, entries=(*known.entries, make.published(benchmark="one", value=2500.0))),
    )
    assert len(made_hostile(path, read_baseline, keep=KEPT)) > 5
    sessions = desk.sessions(text)
    for path in desk.run_paths():
        assert len(made_hostile(path, read_run, keep=KEPT)) > 5
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(desk.path / "step.md"))
    desk.script(slow=1.5)
    shown = set()
    for against in (["--roofline-baselines=baselines"], sessions):
        done = desk.run(
            "-v",
            *against,
            "--roofline-report=out",
            "--junitxml=junit.xml",
            "--roofline-rounds=auto",
        )
        lines = done.stdout.str().splitlines()
        own = [line for line in lines if line.startswith(("::error ", "::warning "))]
        assert own
        files = {
            one.name: one.read_text()
            for one in (*(desk.path / "out").iterdir(), *desk.path.glob("step.md"))
        }
        files |= {
            "junit.xml": (desk.path / "junit.xml").read_text(),
            "terminal": "\n".join(set(lines) - set(own)),
        }
        shown |= {name for name in files if "stop-commands" in files[name]}
        assert {name: steers(said) for name, said in files.items()} == {name: [] for name in files}
    assert shown == {
        "terminal",
        "junit.xml",
        "index.html",
        "summary.md",
        "step.md",
        "run.json",
        "results.csv",
    }
