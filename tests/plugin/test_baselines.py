"""What stands behind a verdict: missing baselines, other hardware, and files that cannot be used."""

import json

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
    # Also with a folder of one's own.
    for index, options in enumerate(((), ("--roofline-dir=results",), ("--roofline-require-baseline",))):
        for command in commands_of(desk.run(*options)):
            answer = desk.cli(*command)
            assert answer.exit_code == 0, answer.output
        desk.run().stdout.fnmatch_lines(["2 of 2 compared: *"])
        (desk.path / "baselines").rename(desk.path / f"used{index}")
        (desk.path / "h100-proposal.json").unlink()


def test_a_missing_baseline_passes_unless_it_is_required(desk):
    raw = raw_baseline(desk)
    assert desk.run("--roofline-require-baseline").ret == 0
    # Another driver is the same hardware, and a test may move to another file.
    desk.script(driver="570.86")
    (desk.path / "test_suite.py").rename(desk.path / "test_moved.py")
    result = desk.run("--roofline-require-baseline")
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])
    raw["entries"] = [entry for entry in raw["entries"] if entry["parameters"]["size_bytes"] == 64 * 2**20]
    h100(desk, json.dumps(raw))
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["1 of 2 compared: *. NO BASELINE for copy[[]1GiB]: *"])
    result = desk.run("--roofline-require-baseline")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["copy[[]1GiB]: NO BASELINE (*), and a baseline is required"])


def test_what_is_something_else_is_not_compared_and_the_nearest_is_named(desk):
    raw = raw_baseline(desk)
    desk.suite((desk.path / "test_suite.py").read_text().replace("write_bytes=size_bytes, ", ""))
    desk.run().stdout.fnmatch_lines(["THIS RUN GATES NOTHING*the test's work changed from *"])
    desk.suite()
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
    # Also with another memory alone.
    desk.script(product="Prototype X", memory_bytes=16 * 2**30)
    desk.run("--roofline-save=small")
    desk.script(product="Prototype X", memory_bytes=32 * 2**30)
    sentence(desk.run("--roofline-against=small"), "16gib", "32gib")


def test_a_damaged_baseline_is_a_usage_error_that_names_the_file(desk, sentence):
    desk.suite()
    for text, word in (
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
    ):
        h100(desk, text)
        sentence(desk.run(), "h100.json", word)
    (desk.path / "baselines" / "h100.json").write_bytes(b"\xff\xfe\x00{")
    sentence(desk.run(), "h100.json", "UTF-8")
    # It does not disturb tests that do not measure, nor is one of another family any matter.
    desk.suite("def test_nothing(): pass\n")
    assert desk.run().ret == 0
    desk.suite()
    h100(desk, '{"schema": 1, "family": "h100", "entries": []}')
    (desk.path / "baselines" / "mi300x.json").write_text("{")
    assert desk.run().ret == 0


def test_an_impossible_entry_is_a_usage_error_that_names_file_and_entry(desk, sentence):
    raw = raw_baseline(desk)
    session = raw["entries"][1]["sessions"][0]
    for change, word in (
        ({"sessions": [session | {"process_medians": [float("nan")]}]}, "NaN"),
        ({"sessions": [session | {"process_medians": [-1.0]}]}, "process_medians"),
        ({"sessions": [session | {"process_medians": [0.0]}]}, "process_medians"),
        ({"tolerance": float("inf")}, "Infinity"),
        ({"tolerance": -0.05}, "tolerance"),
        ({"tolerance": 1e9}, "tolerance is"),
        ({"tolerance": 0.8}, "tolerance is"),
        ({"colour": "blue"}, "colour"),
        ({"benchmark": 7}, "benchmark"),
        ({"sessions": []}, "sessions"),
        ({"kind": "guessed"}, "guessed"),
    ):
        first, second = raw["entries"]
        h100(desk, json.dumps(raw | {"entries": [first, second | change]}))
        said = sentence(desk.run(), "h100.json", word)
        assert word in ("NaN", "Infinity") or "entries[1]" in said
    # A wide tolerance that says why is used; the same entry twice is refused by both places.
    h100(desk, json.dumps(raw | {"entries": [first | {"tolerance": 0.8, "reason": "the host is shared"}, second]}))
    assert desk.run().ret == 0
    h100(desk, json.dumps(raw | {"entries": [first, second, first]}))
    sentence(desk.run(), "h100.json", "entries 0 and 2")


def test_a_run_to_compare_with_that_is_damaged_or_missing_is_a_usage_error_that_names_it(desk, sentence):
    desk.suite()
    sentence(desk.run("--roofline-against=run9"), "run9", "--roofline-save=NAME")
    sentence(desk.run("--roofline-baselines=nowhere"), "--roofline-baselines=nowhere", "nowhere")
    for option in ("--roofline-against=" + "a" * 400 + "/x", "--roofline-baselines=" + "a" * 400):
        sentence(desk.run(option), "File name too long")
    assert desk.cli("baseline", "propose", "a" * 400 + ".jsonl", "-o", "p.json").exit_code == 2
    desk.run_path("bad").parent.mkdir(parents=True)
    for text in ("", "{", '{"type": "outcome"}\n', '{"type": "header", "schema": 9}\n', "\x00\x01"):
        desk.run_path("bad").write_text(text)
        sentence(desk.run("--roofline-against=bad"), "bad.jsonl")
    desk.baseline("site")
    desk.five_runs()
    sentence(desk.run("--roofline-against=run0", "--roofline-against=site/h100.json"), "run0", "h100.json")
    header, rest = desk.run_path("run1").read_text().split("\n", 1)
    facts = json.loads(header)
    facts["environment"]["host"]["threads"] = 10**400
    desk.run_path("run1").write_text(json.dumps(facts) + "\n" + rest)
    sentence(desk.run("--roofline-against=run1"), "401 digits")
    # One that was cut in the middle of a line still compares.
    path = desk.run_path("run0")
    path.write_text(path.read_text().rstrip("\n")[:-10])
    desk.run("--roofline-against=run0").stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])


def threshold(value, confidence="high"):
    return {
        "benchmark": "copy", "kind": "threshold", "metric": "traffic_GBps", "value": value, "unit": "GB/s",
        "convention": "traffic, 1e9", "source": "the maker", "confidence": confidence,
    }  # fmt: skip


def test_a_published_limit_gates_where_it_can_be_trusted_and_a_reference_never(desk):
    desk.suite()
    for entry, required in (
        (threshold(1500), 0),
        (threshold(2500), 1),
        (threshold(2500, "recalled"), 1),
        (threshold(2500, "low"), 1),
        (threshold([2500, 2600]), 1),
        (threshold(2500) | {"kind": "reference"}, 1),
        (threshold([2500, 2600]) | {"kind": "reference"}, 1),
        (threshold("out of memory") | {"kind": "reference"}, 1),
    ):
        h100(desk, json.dumps({"schema": 1, "family": "h100", "entries": [entry]}))
        gates = entry == threshold(2500)
        assert desk.run().ret == int(gates), entry
        assert desk.run("--roofline-require-baseline").ret == required, entry


def test_a_proposal_from_a_fake_device_says_so(desk):
    desk.one()
    desk.run("--roofline-save=r")
    answer = desk.cli("baseline", "propose", desk.run_path("r"), "-o", desk.path / "p.json")
    assert "note: these runs are of a fake device" in answer.output


def test_an_entry_that_no_machine_can_have_recorded_is_not_compared_with_and_named_with_its_file(desk):
    raw = raw_baseline(desk)
    said = "*baselines/h100.json holds copy[[]1GiB] with *expected *so nothing is compared with it*baseline check*"
    for seconds in (1e17, 3.0, 1e-7):
        for entry in raw["entries"]:
            for session in entry["sessions"]:
                session["process_medians"] = [seconds for _ in session["process_medians"]]
        h100(desk, json.dumps(raw))
        desk.run().stdout.fnmatch_lines([f"INVALID copy[[]1GiB]: {said}"])
        assert desk.run("--roofline-fail-on=regressed,invalid").ret == 1


def test_a_run_of_absurd_times_becomes_no_baseline_by_any_door(desk):
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
    answer = desk.cli("baseline", "propose", "bad-1", "bad-2", "-o", "p.json")
    assert all("1GiB" not in entry.label for entry in read_baseline(desk.path / "p.json").entries)
    assert "of the highest peak that applies; expected at most 110%" in answer.output
    desk.run("--roofline-against=bad-1").stdout.fnmatch_lines(["INVALID copy*bad-1.jsonl holds copy*"])
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
