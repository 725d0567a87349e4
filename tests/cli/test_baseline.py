"""`roofline baseline`: runs become a proposal, a person approves it; what there is, is it sane, what is unused."""

import json
import platform
import subprocess
from dataclasses import replace

import pytest

from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.core.entries import Baseline, Session
from pytest_roofline.engine.devices import cpu

NIGHTS = (1.0, 1.004, 0.997)


@pytest.fixture
def baseline(command):
    """Runs a command of `roofline baseline`."""
    return lambda *arguments: command("baseline", *arguments)


@pytest.fixture
def save(make, tmp_path):
    """Saves a run under a name; measurements whose test passed."""

    def one(name, *records, started="2026-02-01T03:00:00Z", **environment):
        header = replace(make.header(name, **environment), started=started)
        measured = [record for record in records if hasattr(record, "samples")]
        told = {record.test_id for record in records if not hasattr(record, "samples")}
        lines = [
            header,
            *records,
            *(make.outcome(one) for one in measured if one.test_id not in told),
        ]
        path = tmp_path / ".roofline" / "runs" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(encode_line, lines)), encoding="utf-8")
        return path

    return one


@pytest.fixture
def runs(make, save):
    """Three nights that agree, the first two on an older driver, and a run in which everything took twice as long."""
    for number, seconds in enumerate(NIGHTS):
        driver = "550.54.14" if number < 2 else "570.86"
        save(
            f"n{number}",
            make.measurement(seconds),
            started=f"2026-02-0{number + 1}T03:00:00Z",
            driver=driver,
        )
    return save(
        "slow", make.measurement(2.0), started="2026-02-09T03:00:00Z", driver="580.1"
    ).parent


def held(path):
    return {entry.label: entry.medians for entry in read_baseline(path).entries}


def test_runs_become_a_baseline_in_two_steps(baseline, runs, tmp_path):
    proposed = baseline("propose", "n0", "n1", "n2", "-o", "p.json")
    assert (proposed.exit_code, proposed.stderr) == (0, "")
    assert "1 entry for h200-sxm, 141gb, from up to 3 sessions, in p.json" in proposed.stdout
    assert proposed.stdout.endswith(
        "check the proposal, then type: roofline baseline approve p.json\n"
    )
    approved = baseline("approve", "p.json")
    assert approved.exit_code == 0
    assert "1 entry written to baselines/h200.json" in approved.stdout
    assert held(tmp_path / "baselines" / "h200.json") == {"memcpy_d2d[64MiB]": NIGHTS}
    again = baseline("approve", "p.json").stdout
    assert (
        again
        == "nothing to change: baselines/h200.json already holds all entries of the proposal\n"
    )
    # What is provisional is told, and recorded all the same.
    told = "provisional: 1 of 1 entry (1 with fewer than 3 sessions, "
    proposed = baseline("propose", "n0", "-o", "q.json").stdout
    assert (told in proposed, "see `roofline baseline show q.json`" in proposed) == (True, True)
    assert told in baseline("approve", "q.json", "--into", "other").stdout


def test_without_names_all_saved_runs_are_chosen_by_driver_and_date(
    baseline, refused, runs, tmp_path
):
    result = baseline("propose", "-o", "p.json", "--driver", "550")
    assert (result.exit_code, result.stderr) == (0, "note: 2 of 4 runs match --driver 550\n")
    assert held(tmp_path / "p.json") == {"memcpy_d2d[64MiB]": NIGHTS[:2]}
    assert (
        baseline(
            "propose", "-o", "q.json", "--after", "2026-02-02", "--before", "2026-02-05"
        ).exit_code
        == 0
    )
    assert held(tmp_path / "q.json") == {"memcpy_d2d[64MiB]": NIGHTS[1:]}
    # A run that disagrees with the others is refused by name, and a proposal is a new file.
    sentence = refused("baseline", "propose", "-o", "r.json")
    assert sentence.startswith(".roofline/runs/slow.jsonl is ")
    assert " slower than the others (" in sentence
    assert not (tmp_path / "r.json").exists()
    before = (runs / "n0.jsonl").read_text()
    assert "exists already; choose another name with -o" in refused(
        "baseline", "propose", "n0", "-o", runs / "n0.jsonl"
    )
    assert before == (runs / "n0.jsonl").read_text()


def test_what_is_left_out_of_a_proposal_is_named_on_stderr(baseline, make, save, runs, tmp_path):
    save(
        "bad",
        *[
            make.measurement(key=make.key(f"t{number}"), invalid="wrong data")
            for number in range(40)
        ],
    )
    result = baseline("propose", "bad", "-o", "none.json")
    assert (result.exit_code, result.stdout, (tmp_path / "none.json").exists()) == (2, "", False)
    lines = result.stderr.splitlines()
    shown = [f"left out: t{number}[64MiB] of bad: wrong data" for number in range(12)]
    assert lines[:13] == [*shown, "… and 28 more of these"]
    assert (
        lines[13]
        == "roofline: no measurement in .roofline/runs/bad.jsonl is fit for a baseline: all measurements were left out"
    )
    assert (len(lines), max(map(len, lines)) < 200) == (14, True)
    # With --all and --accept-slower tests that do not gate, or were only slower, are in it.
    slow = make.measurement(key=make.key("slow"))
    save("r", make.measurement(gate=True), slow, make.outcome(slow, "failed", by_verdict=True))
    whole = (runs / "r.jsonl").read_text()
    (runs / "r.jsonl").write_text(whole + whole[:20])
    result = baseline("propose", "r", "-o", "p.json", "--all", "--accept-slower")
    note = "note: .roofline/runs/r.jsonl ends in the middle of a line; that line is left out\n"
    assert (result.stderr, result.stdout.startswith("2 entries for ")) == (note, True)


def test_runs_of_a_busy_machine_are_refused_in_one_sentence_with_who_keeps_it_busy_now(
    refused, make, save, monkeypatch
):
    kept = "other processes kept {} of 2 cores busy during the measurement; run the test on a quiet machine"
    save(
        "r",
        *[
            make.measurement(process=f"p{taken}", invalid=kept.format(taken))
            for taken in (1.2, 1.7)
        ],
    )
    keep = "other processes keep 1.9 of 2 cores busy (ld (7) 1.0)"
    # Of another machine nothing is known now.
    for here, busy, now in (
        ("node", keep, f"; now {keep}"),
        ("node", "", ""),
        ("elsewhere", keep, ""),
    ):
        monkeypatch.setattr(platform, "node", lambda here=here: here)
        monkeypatch.setattr(cpu, "neighbours_now", lambda busy=busy: busy)
        assert refused("baseline", "propose", "r", "-o", "none.json") == (
            "no measurement in .roofline/runs/r.jsonl is fit for a baseline: other processes kept the cores busy "
            f"during the measurement{now}; end the busy processes, or wait until they end; record again, "
            "under the same names, once `roofline doctor` exits 0"
        )


def proposal(make, path, *seconds, benchmark="memcpy_d2d", first=0, driver="570.86", more=()):
    """A proposal of nights of one process each."""
    nights = tuple(
        Session(
            f"r{first + i}",
            f"2026-01-{first + i + 1:02d}T03:00:00Z",
            (value,),
            "GPU-1",
            {"driver": driver},
        )
        for i, value in enumerate(seconds)
    )
    entry = make.measured(key=make.key(benchmark), sessions=nights, provenance={"tool": "t"})
    write_baseline(path, Baseline("h200", (entry, *more)))
    return path


def entry_of(make, folder, benchmark, *seconds, **told):
    return read_baseline(
        proposal(make, folder / "x.json", *seconds, benchmark=benchmark, **told)
    ).entries[0]


def test_the_diff_tells_of_each_entry_what_happens_to_it_and_only_parts_can_be_approved(
    baseline, refused, make, tmp_path
):
    def three(path, first, a, b, c):
        others = [
            entry_of(make, tmp_path, name, *values, first=first)
            for name, values in (("b", b), ("c", c))
        ]
        return proposal(make, tmp_path / path, *a, benchmark="a", first=first, more=others)

    steady = (1e-3, 1.002e-3, 0.999e-3, 1.001e-3)
    path = three("p.json", 0, steady, steady, steady)
    assert "no entry has 'nothing' in its label" in refused(
        "baseline", "approve", path, "--only", "nothing"
    )
    assert (
        "2 entries written"
        in baseline("approve", path, "--only", "a[64MiB]", "--only", "c[").stdout
    )
    assert list(held(tmp_path / "baselines" / "h200.json")) == ["a[64MiB]", "c[64MiB]"]
    assert "1 entry written" in baseline("approve", path).stdout
    result = baseline(
        "approve", three("q.json", 9, [0.9e-3] * 2, steady, [1.2e-3] * 2), "--accept-slower"
    )
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[2:5] == [
        "a[64MiB] 1.00 ms 900 µs 4 → 2 4 → 2 replaced (IMPROVED -10.0 %)",
        "b[64MiB] 1.00 ms 1.00 ms 4 → 8 4 → 8 joined (+0.0 %)",
        "c[64MiB] 1.00 ms 1.20 ms 4 → 2 4 → 2 replaced (slower +19.9 %)",
    ]
    assert "8 → 4" in baseline("approve", tmp_path / "q.json", "--replace").stdout


def test_code_that_crept_is_refused_until_it_is_accepted_and_shown(baseline, make, tmp_path):
    def week(number, *options):
        seconds = (1e-3 * 1.01**number,) * 3
        return baseline(
            "approve", proposal(make, tmp_path / "w.json", *seconds, first=3 * number), *options
        )

    assert [week(number).exit_code for number in range(5)] == [0] * 5
    path = tmp_path / "baselines" / "h200.json"
    text = path.read_text()
    for options in ((), ["--dry-run"], ["--replace"]):
        assert week(5, *options).stderr == (
            "roofline: "
            "memcpy_d2d[64MiB] takes +5.1 % time since 2026-01-01, over 5 renewals (tolerance 5 %); expected at most "
            "the tolerance, over all renewals together; find the cause, or approve only other entries with --only, "
            "or accept the change with --accept-slower\n"
        )
    assert path.read_text() == text
    line = "memcpy_d2d[64MiB]: +4.1 % since 2026-01-01, in 4 renewals (+1.0, +2.0, +3.0, +4.1 %)"
    assert line in baseline("show").stdout.splitlines()
    assert week(5, "--accept-slower").exit_code == 0
    (row,) = json.loads(baseline("show", "--json").stdout)
    assert (row["anchor"], row["renewals"][-1]["accepted_slower"]) == ("2026-01-16", True)
    assert [round(renewal["drift"], 3) for renewal in row["renewals"]] == [
        0.01,
        0.02,
        0.03,
        0.041,
        0.051,
    ]


def test_a_proposal_or_baseline_that_cannot_be_used_changes_nothing(
    command, refused, make, runs, tmp_path
):
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "h200.json").write_text("{")
    command("baseline", "propose", "n0", "-o", "p.json")
    assert "baseline baselines/h200.json is not JSON" in refused("baseline", "approve", "p.json")
    assert (tmp_path / "baselines" / "h200.json").read_text() == "{"
    for family in ("../evil", "/etc/evil", ""):
        write_baseline(tmp_path / "p.json", Baseline(family, (make.measured(),)))
        assert f"family is {family!r}" in refused(
            "baseline", "approve", "p.json", "--into", "deep/baselines"
        )
    assert not (tmp_path / "deep").exists()
    write_baseline(
        tmp_path / "p.json",
        Baseline("h200", (make.measured(key=make.key(parameters={"seed": 12345})),)),
    )
    whole = (tmp_path / "p.json").read_text()
    for value in ("1e999", '"\\ud800"', "1" + "0" * 400):
        (tmp_path / "p.json").write_text(whole.replace("12345", value))
        result = command("baseline", "approve", "p.json", "--into", "other")
        assert result.exit_code in (0, 2)
        assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.fixture
def kept(make, tmp_path):
    """Baselines of two families: one with a second benchmark and a threshold, one damaged in nothing."""
    folder = tmp_path / "baselines"
    other = entry_of(make, tmp_path, "other", 5e-5)
    limit = make.published(value=2500.0, hardware=make.hardware(), provenance={"ticket": "42"})
    proposal(make, folder / "h200.json", 4e-5, 4.01e-5, 3.99e-5, more=(other, limit))
    entry = make.measured(
        5e-5, key=make.key("h100only", hardware=make.hardware(product="h100-sxm5", memory="80gb"))
    )
    write_baseline(
        folder / "h100.json", Baseline("h100", (replace(entry, provenance={"tool": "t"}),))
    )
    (tmp_path / "x.json").unlink()
    return folder


def test_show_tells_of_every_file_and_entry_or_of_those_that_are_named(baseline, refused, kept):
    result = baseline("show")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.endswith(".json")] == [
        "baselines/h100.json",
        "baselines/h200.json",
    ]
    shown = {
        line.split("[")[0] for line in lines if "64MiB] " in line and "is provisional" not in line
    }
    assert shown == {"h100only", "memcpy_d2d", "other"}
    limit = "memcpy_d2d on h200-sxm, 141gb: threshold 2500 GB/s (read + write; the vendor's guide), confidence high"
    assert f"  {limit}" in lines
    assert any(
        line.startswith("other[64MiB] is provisional: 1 of 3 sessions; detects slowdowns from ")
        for line in lines
    )
    assert "driver: 570.86" in lines
    text = baseline("show", kept / "h200.json", "other").stdout
    assert [name in text for name in ("other[64MiB]", "memcpy", "h100only")] == [True, False, False]
    assert "no entry has 'nothing' in its label" in refused("baseline", "show", "nothing")
    kept.rename(kept.with_name("site"))
    assert "h100only" in baseline("show", "--into", "site").stdout
    assert "there is no folder baselines with baselines" in refused("baseline", "show")


def test_check_names_what_is_wrong_and_fails_and_a_hint_fails_nothing(
    baseline, refused, make, kept, tmp_path
):
    proposal(make, kept / "h200.json", 1e-6)
    result = baseline("check")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "baselines/h200.json: memcpy_d2d[64MiB]: 134218 GB/s, 2796% of the highest peak that applies; expected at "
        "most 110%; the work was not done, or was counted wrongly; correct the test, and record the test again",
        "1 wrong in 2 entries of 2 files",
    ]
    write_baseline(
        tmp_path / "h200.json", Baseline("h200", (make.published("reference", value=2500.0),))
    )
    result = baseline("check", "h200.json")
    assert result.exit_code == 0
    assert result.stdout.startswith("hint: h200.json: memcpy_d2d: no product; expected ")
    (tmp_path / "old.json").write_text('{"schema": 7, "family": "h200", "entries": []}')
    for verb in ("check", "show"):
        assert "baseline old.json has schema version 7" in refused("baseline", verb, "old.json")


@pytest.fixture
def collection(monkeypatch):
    """In place of pytest: writes a plan of these tests."""

    def of(*tests, status=0):
        def run(command, env, **_):
            lines = [
                json.dumps({"benchmark": name, "parameters": parameters}) + "\n"
                for name, parameters in tests
            ]
            with open(env["ROOFLINE_PLAN"], "w") as file:  # noqa: PTH123
                file.writelines(lines)
            return subprocess.CompletedProcess(
                command, status, stdout="ERROR test_x.py: no\n", stderr=""
            )

        monkeypatch.setattr(subprocess, "run", run)

    return of


SIZE = {"size_bytes": 64 * 2**20}


def contents(folder):
    return {path.name: (path.read_text(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_prune_lists_what_no_test_uses_and_removes_it_once_it_is_told_to(
    baseline, kept, collection
):
    before = contents(kept)
    collection(("memcpy_d2d", SIZE), ("other", {"size_bytes": 1}))
    result = baseline("check", "--prune")
    assert result.exit_code == 0
    hint = "no test uses this entry, since {}; expected a test that measures this entry; --apply removes the entry"
    assert [
        line for line in result.stdout.splitlines() if "unused" in line or "no test" in line
    ] == [
        "hint: baselines/h100.json: h100only[64MiB] (h100-sxm5, 80gb; measured): "
        + hint.format("there is no such test"),
        "hint: baselines/h200.json: other[64MiB] (h200-sxm, 141gb; measured): "
        + hint.format("the test has other parameters now"),
        "unused: 2 of 4 entries; pytest collected 2 tests that measure",
    ]
    collection(("memcpy_d2d", SIZE), ("h100only", SIZE), ("other", SIZE))
    result = baseline("check", "--prune", "--apply")
    assert (
        result.stdout.splitlines()[-1]
        == "unused: 0 of 4 entries; pytest collected 3 tests that measure"
    )
    assert contents(kept) == before
    collection(("memcpy_d2d", SIZE), ("h100only", SIZE))
    result = baseline("check", "--prune", "--apply")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "1 entry removed")
    assert list(held(kept / "h200.json")) == ["memcpy_d2d", "memcpy_d2d[64MiB]"]
    assert contents(kept)["h100.json"] == before["h100.json"]


def test_a_collection_that_failed_or_found_other_tests_deletes_nothing(baseline, kept, collection):
    before = contents(kept)
    cases = [
        ([("memcpy_d2d", SIZE)], 2, "pytest ended with status 2"),
        ([], 0, "pytest collected no test that measures"),
        ([("unrelated", {})], 0, "no collected test uses any of the 4 entries in baselines"),
    ]
    for tests, status, said in cases:
        collection(*tests, status=status)
        result = baseline("check", "--prune", "--apply")
        assert (result.exit_code, said in result.stderr.splitlines()[-1]) == (2, True), said
        assert status == 0 or result.stderr.splitlines()[0] == "ERROR test_x.py: no"
    assert contents(kept) == before


def test_prune_asks_a_real_pytest_for_its_tests(baseline, kept, tmp_path):
    """The ini file of the project deselects one test; its entry is in use all the same."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -k memcpy\n")
    (tmp_path / "test_suite.py").write_text(
        "import pytest\n"
        f"@pytest.mark.parametrize('size_bytes', [{64 * 2**20}], ids=['64MiB'])\n"
        "@pytest.mark.roofline(tier='full')\n"
        "def test_memcpy_d2d(roofline, size_bytes): raise AssertionError\n"
        f"@pytest.mark.parametrize('size_bytes', [{64 * 2**20}], ids=['64MiB'])\n"
        "def test_other(roofline, size_bytes): raise AssertionError\n"
        "def test_h100only(): pass\n"
    )
    result = baseline("check", "--prune")
    assert result.exit_code == 0, result.stderr
    unused = [line for line in result.stdout.splitlines() if "no test uses this entry" in line]
    assert ["hint: baselines/h100.json: h100only[64MiB] (h100-sxm5, 80gb; measured)"] == [
        line.partition(": no test")[0] for line in unused
    ]
    assert (
        result.stdout.splitlines()[-1]
        == "unused: 1 of 4 entries; pytest collected 2 tests that measure"
    )
    assert not (tmp_path / ".roofline").exists()
