"""What stands behind a verdict: missing baselines, other hardware, and files that cannot be used."""

import json

import pytest

from pytest_roofline.baselines.files import read_baseline


def h100(desk, text):
    folder = desk.path / "baselines"
    folder.mkdir(exist_ok=True)
    (folder / "h100.json").write_text(text)


def raw_baseline(desk):
    desk.baseline()
    return json.loads((desk.path / "baselines" / "h100.json").read_text())


def commands_of(result):
    lines = [line.strip() for line in result.stdout.lines]
    return [line.split()[1:] for line in lines if line.startswith("roofline baseline ")]


def test_the_printed_commands_make_the_next_run_compare(desk):
    desk.suite()
    for command in commands_of(desk.run()):
        answer = desk.cli(*command)
        assert answer.exit_code == 0, answer.output
    desk.run().stdout.fnmatch_lines(["2 of 2 compared: *"])


def test_the_printed_commands_work_with_a_folder_of_ones_own(desk):
    desk.suite()
    for command in commands_of(desk.run("--roofline-dir=results")):
        answer = desk.cli(*command)
        assert answer.exit_code == 0, answer.output
    desk.run().stdout.fnmatch_lines(["2 of 2 compared: *"])


def test_require_baseline_turns_a_missing_baseline_red(desk):
    desk.suite()
    result = desk.run("--roofline-require-baseline")
    assert result.ret == 1
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["copy[[]64MiB]: NO BASELINE (*), and a baseline is required"])


def test_require_baseline_lets_a_compared_run_pass(desk):
    desk.baseline()
    assert desk.run("--roofline-require-baseline").ret == 0


def test_one_missing_entry_among_others_passes_and_is_named(desk):
    raw = raw_baseline(desk)
    raw["entries"] = [entry for entry in raw["entries"] if entry["parameters"]["size_bytes"] == 64 * 2**20]
    h100(desk, json.dumps(raw))
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 of 2 compared: *. NO BASELINE for copy[[]1GiB]: *"])


def test_a_baseline_of_another_product_is_not_used_and_the_nearest_is_named(desk):
    raw = raw_baseline(desk)
    for entry in raw["entries"]:
        entry["hardware"]["product"] = "h100-pcie"
    h100(desk, json.dumps(raw))
    desk.script(slow=2.0)
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["THIS RUN GATES NOTHING*no entry for this hardware (h100-sxm5*h100-pcie*"])


def test_runs_of_another_hardware_are_refused_by_name(desk, sentence):
    against = desk.five_runs()
    desk.script(product="NVIDIA A100-SXM4-80GB")
    sentence(desk.run(*against), "run0", "a100", "h100-sxm5", "hardware")


def test_less_memory_is_another_hardware(desk, sentence):
    desk.script(product="Prototype X", memory_bytes=16 * 2**30)
    desk.suite()
    desk.run("--roofline-save=small")
    desk.script(product="Prototype X", memory_bytes=32 * 2**30)
    sentence(desk.run("--roofline-against=small"), "16gib", "32gib")


def test_another_driver_is_the_same_hardware(desk):
    desk.baseline()
    desk.script(driver="570.86")
    desk.run("--roofline-require-baseline").assert_outcomes(passed=2)


def test_changed_work_is_not_compared(desk):
    desk.baseline()
    desk.suite((desk.path / "test_suite.py").read_text().replace("write_bytes=size_bytes, ", ""))
    result = desk.run()
    result.stdout.fnmatch_lines(["THIS RUN GATES NOTHING*the test's work changed from *"])


def test_a_test_that_moved_to_another_file_keeps_its_baseline(desk):
    desk.baseline()
    (desk.path / "test_suite.py").rename(desk.path / "test_moved.py")
    desk.run().stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ('{"schema": 1, "family": "h1', "not JSON"),
        ("memcpy: 2000", "not JSON"),
        ("[1, 2]", "list"),
        ('{"schema": 2, "family": "h100", "entries": []}', "schema version 2"),
        ('{"family": "h100", "entries": []}', "no schema version"),
        ('{"schema": 1, "family": "h100", "entries": [], "colour": 1}', "colour"),
        ('{"schema": 1, "family": "../h100", "entries": []}', "family"),
        ('{"schema": 1, "family": "h100", "entries": [], "entries": []}', "twice"),
        ("[" * 100_000, "h100.json"),
    ],
    ids=[
        "empty",
        "blank",
        "truncated",
        "no-json",
        "list",
        "schema-2",
        "no-schema",
        "unknown",
        "family",
        "twice",
        "deep",
    ],
)
def test_a_damaged_baseline_is_a_usage_error_that_names_the_file(desk, sentence, text, word):
    desk.suite()
    h100(desk, text)
    sentence(desk.run(), "h100.json", word)


def test_a_baseline_that_is_not_text_is_a_usage_error_that_names_the_file(desk, sentence):
    desk.suite()
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_bytes(b"\xff\xfe\x00{")
    sentence(desk.run(), "h100.json", "UTF-8")


def edit_nan(entry):
    entry["sessions"][0]["process_medians"] = [float("nan")]


def edit_negative(entry):
    entry["sessions"][0]["process_medians"] = [-1.0]


def edit_zero(entry):
    entry["sessions"][0]["process_medians"] = [0.0]


def edit_infinite(entry):
    entry["tolerance"] = float("inf")


def edit_tolerance(entry):
    entry["tolerance"] = -0.05


def edit_unknown_field(entry):
    entry["colour"] = "blue"


def edit_wrong_type(entry):
    entry["benchmark"] = 7


def edit_no_sessions(entry):
    entry["sessions"] = []


def edit_kind(entry):
    entry["kind"] = "guessed"


@pytest.mark.parametrize(
    ("edit", "word"),
    [
        (edit_nan, "NaN"),
        (edit_negative, "process_medians"),
        (edit_zero, "process_medians"),
        (edit_infinite, "Infinity"),
        (edit_tolerance, "tolerance"),
        (edit_unknown_field, "colour"),
        (edit_wrong_type, "benchmark"),
        (edit_no_sessions, "sessions"),
        (edit_kind, "guessed"),
    ],
    ids=lambda value: getattr(value, "__name__", "word"),
)
def test_an_impossible_entry_is_a_usage_error_that_names_file_and_entry(desk, sentence, edit, word):
    raw = raw_baseline(desk)
    edit(raw["entries"][1])
    h100(desk, json.dumps(raw))
    said = sentence(desk.run(), "h100.json", word)
    assert word in ("NaN", "Infinity") or "entries[1]" in said


def test_a_duplicate_entry_is_a_usage_error_that_names_both(desk, sentence):
    raw = raw_baseline(desk)
    raw["entries"].append(raw["entries"][0])
    h100(desk, json.dumps(raw))
    sentence(desk.run(), "h100.json", "entries 0 and 2")


def test_a_damaged_baseline_of_another_family_does_not_disturb(desk):
    desk.baseline()
    (desk.path / "baselines" / "mi300x.json").write_text("{")
    assert desk.run().ret == 0


def test_a_damaged_baseline_does_not_disturb_tests_that_do_not_measure(desk):
    desk.suite("def test_nothing(): pass\n")
    h100(desk, "{")
    assert desk.run().ret == 0


def test_a_folder_of_baselines_that_is_missing_is_a_usage_error(desk, sentence):
    desk.suite()
    sentence(desk.run("--roofline-baselines=nowhere"), "--roofline-baselines=nowhere", "nowhere")


@pytest.mark.parametrize("text", ["", "{", '{"type": "outcome"}\n', '{"type": "header", "schema": 9}\n', "\x00\x01"])
def test_a_damaged_run_is_a_usage_error_that_names_the_file(desk, sentence, text):
    desk.suite()
    desk.run_path("bad").parent.mkdir(parents=True)
    desk.run_path("bad").write_text(text)
    sentence(desk.run("--roofline-against=bad"), "bad.jsonl")


def test_a_run_cut_in_the_middle_of_a_line_still_compares(desk):
    desk.five_runs()
    path = desk.run_path("run0")
    path.write_text(path.read_text().rstrip("\n")[:-10])
    desk.run("--roofline-against=run0").stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])


def test_a_missing_run_says_how_to_save_the_first(desk, sentence):
    desk.suite()
    sentence(desk.run("--roofline-against=run9"), "run9", "--roofline-save=NAME")


def test_a_run_and_a_baseline_cannot_both_be_compared_with(desk, sentence):
    desk.baseline("site")
    desk.five_runs()
    sentence(desk.run("--roofline-against=run0", "--roofline-against=site/h100.json"), "run0", "h100.json")


def threshold(value, confidence="high"):
    return {
        "benchmark": "copy", "kind": "threshold", "metric": "traffic_GBps", "value": value, "unit": "GB/s",
        "convention": "traffic, 1e9", "source": "the maker", "confidence": confidence,
    }  # fmt: skip


def test_above_a_published_threshold_passes(desk):
    desk.suite()
    h100(desk, json.dumps({"schema": 1, "family": "h100", "entries": [threshold(1500)]}))
    assert desk.run("--roofline-require-baseline").ret == 0


@pytest.mark.parametrize("entry", [threshold(2500, "recalled"), threshold(2500, "low"), threshold([2500, 2600])])
def test_a_figure_that_cannot_be_trusted_never_gates(desk, entry):
    desk.suite()
    h100(desk, json.dumps({"schema": 1, "family": "h100", "entries": [entry]}))
    assert desk.run().ret == 0


@pytest.mark.parametrize("value", [2500, [2500, 2600], "out of memory"])
def test_a_reference_never_gates_and_never_satisfies_require_baseline(desk, value):
    desk.suite()
    h100(desk, json.dumps({"schema": 1, "family": "h100", "entries": [threshold(value) | {"kind": "reference"}]}))
    assert desk.run().ret == 0
    assert desk.run("--roofline-require-baseline").ret == 1


def test_a_proposal_from_a_fake_device_says_so(desk):
    desk.one()
    desk.run("--roofline-save=r")
    answer = desk.cli("baseline", "propose", desk.run_path("r"), "-o", desk.path / "p.json")
    assert "note: these runs are of a fake device" in answer.output


@pytest.mark.parametrize("seconds", [1e17, 3.0, 1e-7])
def test_an_entry_that_no_machine_can_have_recorded_is_not_compared_with_and_named_with_its_file(desk, seconds):
    raw = raw_baseline(desk)
    for entry in raw["entries"]:
        for session in entry["sessions"]:
            session["process_medians"] = [seconds for _ in session["process_medians"]]
    h100(desk, json.dumps(raw))
    result = desk.run()
    said = "*baselines/h100.json holds copy[[]1GiB] with *expected *so nothing is compared with it*baseline check*"
    result.stdout.fnmatch_lines([f"INVALID copy[[]1GiB]: {said}"])
    assert desk.run("--roofline-fail-on=regressed,invalid").ret == 1


@pytest.mark.parametrize("tolerance", [1e9, 0.8])
def test_an_entry_with_an_absurd_tolerance_is_refused_with_its_file_and_place(desk, sentence, tolerance):
    raw = raw_baseline(desk)
    raw["entries"][0]["tolerance"] = tolerance
    h100(desk, json.dumps(raw))
    sentence(desk.run(), "baselines/h100.json", "$.entries[0]", "tolerance is")


def test_an_entry_with_a_wide_tolerance_that_says_why_is_used(desk):
    raw = raw_baseline(desk)
    raw["entries"][0] |= {"tolerance": 0.8, "reason": "the host is shared"}
    h100(desk, json.dumps(raw))
    assert desk.run().ret == 0


@pytest.mark.parametrize("command", ["propose", "against", "compare"])
def test_a_run_of_absurd_times_becomes_no_baseline_by_any_door(desk, command):
    desk.suite()
    desk.run("--roofline-save=good")
    lines = desk.run_path("good").read_text().splitlines()
    for name in ("bad-1", "bad-2"):
        changed = [json.loads(line) for line in lines]
        for line in changed:
            if line["type"] == "header":
                line["run_id"] = name
            if line["type"] == "measurement":
                line["samples"]["seconds"] = [value * 1e-4 for value in line["samples"]["seconds"]]
                line.pop("derived", None)
        desk.run_path(name).write_text("".join(f"{json.dumps(line)}\n" for line in changed))
    if command == "propose":
        answer = desk.cli("baseline", "propose", "bad-1", "bad-2", "-o", "p.json")
        assert all("1GiB" not in entry.label for entry in read_baseline(desk.path / "p.json").entries)
        assert "of the highest peak that applies; expected at most 110%" in answer.output
    elif command == "against":
        desk.run("--roofline-against=bad-1").stdout.fnmatch_lines(["INVALID copy*bad-1.jsonl holds copy*"])
    else:
        assert "INVALID" in desk.cli("compare", "bad-1", "good").output


def test_an_approval_of_absurd_times_or_of_another_family_is_refused(desk):
    raw = raw_baseline(desk)
    proposal = desk.path / "p.json"
    slow = json.loads(json.dumps(raw))
    slow["entries"][0]["sessions"][0]["process_medians"] = [1e17]
    other = json.loads(json.dumps(raw))
    other["entries"][0]["hardware"] |= {"product": "a100-sxm4", "memory": "80gb"}
    for changed, words in ((slow, "s a call; expected"), (other, "whose family is a100, and the proposal is for h100")):
        proposal.write_text(json.dumps(changed))
        before = (desk.path / "baselines" / "h100.json").read_text()
        answer = desk.cli("baseline", "approve", str(proposal))
        assert (answer.exit_code, words in answer.output) == (2, True), answer.output
        assert (desk.path / "baselines" / "h100.json").read_text() == before
