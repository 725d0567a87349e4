"""What stands behind a verdict: missing baselines, other hardware, and files that cannot be used."""

import json

from pytest_roofline.baselines.files import read_baseline

ONCE = "--roofline-rounds=1"


def h100(desk, text):
    folder = desk.path / "baselines"
    folder.mkdir(exist_ok=True)
    (folder / "h100.json").write_text(text)


def raw_baseline(desk):
    desk.baseline()
    return json.loads((desk.path / "baselines" / "h100.json").read_text())


def test_the_printed_command_makes_the_next_run_compare(desk):
    desk.suite()
    lines = desk.run().stdout.lines
    command = next(line.split() for line in lines if line.startswith("  pytest "))
    assert command == ["pytest", "--roofline-record"]
    result = desk.run(*command[1:], "--roofline-rounds=5")
    assert result.ret == 0, result.stdout.str()
    desk.run().stdout.fnmatch_lines(["GREEN: 2 of 2 fast enough"])


def test_a_missing_baseline_passes_unless_it_is_required(desk):
    raw = raw_baseline(desk)
    # Another driver is the same hardware, and a test may move to another file.
    desk.script(driver="570.86")
    (desk.path / "test_suite.py").rename(desk.path / "test_moved.py")
    desk.run("--roofline-fail-on=+no-baseline").stdout.fnmatch_lines(["GREEN: 2 of 2 *"])
    raw["entries"] = [
        entry for entry in raw["entries"] if entry["parameters"]["size_bytes"] == 64 * 2**20
    ]
    h100(desk, json.dumps(raw))
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["NO BASELINE copy[[]1GiB]: *", "GREEN: 1 of 2 fast enough, 1 undecided (1 NO BASELINE)"]
    )
    result = desk.run("--roofline-fail-on=+no-baseline")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["copy[[]1GiB]: NO BASELINE (*), and a baseline is required"])


def test_what_is_something_else_is_not_compared_and_the_nearest_is_named(desk, sentence):
    raw = raw_baseline(desk)
    desk.suite((desk.path / "test_suite.py").read_text().replace("write_bytes=size_bytes, ", ""))
    desk.run().stdout.fnmatch_lines(
        [
            "NO BASELINE *: the test's work changed from *",
            "GREY: nothing was compared (2 NO BASELINE)",
        ]
    )
    desk.suite()
    for entry in raw["entries"]:
        entry["hardware"]["product"] = "h100-pcie"
    h100(desk, json.dumps(raw))
    desk.script(slow=2.0)
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["NO BASELINE *no entry for this hardware (h100-sxm5*h100-pcie*"])
    # Runs that are named are refused, also where the memory alone is another.
    for product, size in (("NVIDIA H100 80GB HBM3", 80), ("Prototype X", 16)):
        desk.script(product=product, memory_bytes=size * 2**30)
        desk.run(f"--roofline-save=of-{size}")
    desk.script(product="Prototype X", memory_bytes=32 * 2**30)
    sentence(desk.run("--roofline-against=of-80"), "of-80", "prototype", "h100-sxm5", "hardware")
    sentence(desk.run("--roofline-against=of-16"), "16gib", "32gib")


def test_a_damaged_baseline_is_a_usage_error_that_names_file_and_entry(desk, sentence):
    raw = raw_baseline(desk)
    first, second = raw["entries"]
    for text, words in (
        ("", ["empty"]),
        ('{"schema": 1, "family": "h1', ["not JSON"]),
        (
            json.dumps(raw | {"entries": [first, second | {"tolerance": 0.8}]}),
            ["entries[1]", "tolerance is"],
        ),
    ):
        h100(desk, text)
        sentence(desk.run(), "h100.json", *words)
    # It does not disturb tests that do not measure, nor is one of another family any matter.
    desk.suite("def test_nothing(): pass\n")
    assert desk.run().ret == 0
    desk.suite()
    # A wide tolerance that says why is used.
    h100(
        desk,
        json.dumps(
            raw | {"entries": [first | {"tolerance": 0.8, "reason": "the host is shared"}, second]}
        ),
    )
    (desk.path / "baselines" / "mi300x.json").write_text("{")
    assert desk.run().ret == 0


def test_a_run_to_compare_with_that_is_damaged_or_missing_is_a_usage_error_that_names_it(
    desk, sentence
):
    desk.suite()
    sentence(desk.run("--roofline-baselines=nowhere"), "--roofline-baselines=nowhere", "nowhere")
    for option in ("--roofline-against=" + "a" * 400 + "/x", "--roofline-baselines=" + "a" * 400):
        sentence(desk.run(option), "File name too long")
    desk.run_path("bad").parent.mkdir(parents=True)
    for text in ("", '{"type": "outcome"}\n', "\x00\x01"):
        desk.run_path("bad").write_text(text)
        sentence(desk.run("--roofline-against=bad"), "bad.jsonl")
    desk.baseline("site")
    desk.five_runs()
    sentence(
        desk.run("--roofline-against=run0", "--roofline-against=site/h100.json"),
        "run0",
        "h100.json",
    )
    # One that was cut in the middle of a line still compares.
    path = desk.run_path("run0")
    path.write_text(path.read_text().rstrip("\n")[:-10])
    desk.run("--roofline-against=run0").stdout.fnmatch_lines(["GREEN: 2 of 2 *"])


def test_absurd_times_become_no_baseline_by_any_door(desk):
    desk.suite()
    desk.run("--roofline-save=good")
    lines = [json.loads(line) for line in desk.run_path("good").read_text().splitlines()]
    for line in lines:
        if line["type"] == "header":
            line["run_id"] = "bad"
        if line["type"] == "measurement":
            line["samples"]["seconds"] = [value * 1e-4 for value in line["samples"]["seconds"]]
    desk.run_path("bad").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    answer = desk.cli("baseline", "propose", "bad", "-o", "p.json")
    assert all("1GiB" not in entry.label for entry in read_baseline(desk.path / "p.json").entries)
    assert "of the highest peak that applies; expected at most 110%" in answer.output
    desk.run(ONCE, "--roofline-against=bad").stdout.fnmatch_lines(
        ["INVALID copy*bad.jsonl holds copy*"]
    )
    assert "INVALID" in desk.cli("compare", "bad", "good").output
    # Nor by an approval, which takes no other family either.
    raw = raw_baseline(desk)
    slow, other = json.loads(json.dumps(raw)), json.loads(json.dumps(raw))
    slow["entries"][0]["sessions"][0]["process_medians"] = [1e17]
    other["entries"][0]["hardware"] |= {"product": "a100-sxm4", "memory": "80gb"}
    for changed, words in (
        (slow, "s a call; expected"),
        (other, "of the family a100, but the proposal is for h100"),
    ):
        (desk.path / "p.json").write_text(json.dumps(changed))
        answer = desk.cli("baseline", "approve", "p.json")
        assert (answer.exit_code, words in answer.output) == (2, True), answer.output
        assert json.loads((desk.path / "baselines" / "h100.json").read_text()) == raw


def test_a_sites_folder_gates_before_the_shipped_one_and_the_first_of_two_wins(desk):
    desk.baseline("baselines", slow=1.0)
    desk.baseline("site", slow=1.5)
    desk.run().stdout.fnmatch_lines(["roofline *against *h100.json", "GREEN: 2 of 2 *"])
    desk.script(slow=1.5)
    site, shipped = "--roofline-baselines=site", "--roofline-baselines=baselines"
    against = ["--roofline-against=baselines/h100.json"]
    for options, colour in (([], "GREY"), ([site], "GREEN"), ([site, shipped], "GREEN"), ([shipped, site], "GREY"),
                            (against, "GREY")):  # fmt: skip
        desk.run(ONCE, *options).stdout.fnmatch_lines([f"{colour}: ? of 2 fast enough*"])


def test_every_measurement_of_a_test_is_judged(desk):
    text = """
from pytest_roofline import Work
def test_both(roofline, busy, request):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name="down")
    roofline.measure(lambda: busy(2e-3), work=Work(read_bytes=10**9), name="up")
"""
    against = desk.five_runs(text)
    desk.script(slow=1.5)
    result = desk.run(*against)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["both.down: +50.* REGRESSED*", "both.up: +50.* REGRESSED*", "2 measured, 5 rounds"]
    )


def test_a_slowdown_that_is_undecided_makes_the_run_grey_and_a_comparison_end_with_2(desk):
    desk.suite()
    desk.baseline()
    desk.script(slow={"test_copy[64MiB]": 1.3})
    result = desk.run("--roofline-ci", ONCE, "--roofline-save=now", "--roofline-report=out")
    # What cannot be told fails no test: `--roofline-fail-on` says what does.
    assert result.ret == 0
    grey = "GREY: 1 of 2 fast enough, 1 undecided (copy[64MiB] +30 %)"
    assert [line for line in result.stdout.lines if line.startswith("G")] == [grey]
    report = desk.path / "out"
    assert json.loads((report / "run.json").read_text())["runs"][0]["sentence"] == grey
    assert (report / "summary.md").read_text().startswith(f"## roofline: `{grey}`\n")
    assert f'<p class="sentence doubt">{grey}</p>' in (report / "index.html").read_text()
    told = desk.cli("compare", "baselines/h100.json", "now")
    last = "1 INCONCLUSIVE, 1 PASSED; undecided: copy[64MiB] +30 %"
    assert (told.exit_code, told.stdout.splitlines()[-1]) == (2, last)
    failing = desk.run("--roofline-ci", ONCE, "--roofline-fail-on=regressed,inconclusive")
    assert failing.ret == 1
    failing.stdout.fnmatch_lines(["RED: 1 INCONCLUSIVE, 1 of 2 fast enough"])


def test_a_red_test_names_the_run_in_which_it_passed_last_and_what_changed_since(desk):
    against = desk.five_runs_of_one()
    assert desk.run(*against, "--roofline-save=good").ret == 0
    header, *lines = desk.run_path("good").read_text().splitlines()
    earlier = json.dumps(json.loads(header) | {"started": "2026-02-01T03:00:00Z"})
    desk.run_path("good").write_text("\n".join([earlier, *lines, ""]))
    desk.script(slow=1.3, driver="570.86")
    result = desk.run(*against)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*; last PASSED 2026-02-01 in good; since then: driver 550.54 → 570.86;*"]
    )
