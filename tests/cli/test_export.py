"""`roofline export` as a user types it."""

import json
import os
from pathlib import Path

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.core.entries import Baseline
from pytest_roofline.exchange.cli import export
from pytest_roofline.exchange.formats import EXPORT_NAMES

RUNS = Path(__file__).parents[2] / "docs" / "results" / "runs" / "memcpy-gate"
LABEL = "memcpy_d2d[64MiB]"


def test_runs_go_out_in_every_format_and_a_drill_goes_nowhere(command, saved, make, tmp_path):
    saved("night", make.measurement())
    for name in EXPORT_NAMES:
        done = command("export", "night", "--to", name, "-o", "-")
        assert (0, "1 of 1 measurements exported\n") == (done.exit_code, done.stderr)
        # OpenMetrics is text; `test_openmetrics.py` parses it.
        assert done.stdout if name == "openmetrics" else json.loads(done.stdout)
        path = tmp_path / "new folder" / name
        done = command("export", RUNS / "base-2.jsonl", "--to", name, "-o", path)
        assert (0, f"7 of 7 measurements exported to {path}\n") == (done.exit_code, done.stdout)
        skipped = "without a time: test_memcpy_d2d[4KiB], test_memcpy_d2d[32KiB], test_memcpy_d2d[512KiB] and 39 more: "
        assert done.stderr.startswith(f"{skipped}the test was skipped: needs an accelerator")
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if name != "openmetrics" else None
        if document is not None:
            assert 7 == len(document["benchmarks"] if name == "pytest-benchmark" else document)
        done = command("export", RUNS / "drill.jsonl", "--to", name, "-o", "out.json")
        assert (2, "", False) == (done.exit_code, done.stdout, (tmp_path / "out.json").exists())
        assert 7 == done.stderr.count(
            "was slowed down or replaced on purpose, by the hook pytest_roofline_function"
        )
        assert (
            f"roofline: none of 7 measurements can be exported as {name}; name another run\n"
            in done.stderr
        )
    option = next(one for one in export.params if one.name == "format_name")
    assert f"{', '.join(EXPORT_NAMES[:-1])} or {EXPORT_NAMES[-1]}." == option.help


def test_a_file_is_replaced_whole_but_for_runs_baselines_and_pipes(command, saved, make, tmp_path):
    night = saved("night", make.measurement())
    day = make.save(tmp_path / "day.json", make.measurement(key=make.key("day")), run_id="day")
    (tmp_path / "link").symlink_to(night)
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(1e-3),)))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    before = [path.read_bytes() for path in (night, day, tmp_path / "h200.json")]
    cases = [
        *(
            (name, "expected another name")
            for name in (".roofline/runs/night.jsonl", "link", "new.jsonl", "day.json")
        ),
        (".roofline/../day.json", "expected another name"),
        ("h200.json", "h200.json is a baseline, or another input of pytest-roofline"),
        (
            "pipe",
            "pipe cannot be written: it is a pipe or a device; expected a file, or a new name",
        ),
        ("folder", "folder cannot be written: "),
    ]
    for output, said in cases:
        done = command("export", "night", "./day.json", "--to", "bencher", "-o", output)
        assert (2, "", True) == (done.exit_code, done.stdout, said in done.stderr), (
            output,
            done.stderr,
        )
    assert [path.read_bytes() for path in (night, day, tmp_path / "h200.json")] == before
    assert ((tmp_path / "new.jsonl").exists(), (tmp_path / "pipe").is_fifo()) == (False, True)
    (tmp_path / "out.json").write_text("x" * 10**5, encoding="utf-8")
    command("export", "night", "--to", "bencher", "-o", "out.json")
    assert [LABEL] == list(json.loads((tmp_path / "out.json").read_text(encoding="utf-8")))


def test_what_is_wrong_with_the_input_is_said(command, refused, saved, make):
    path = saved(
        "night", make.measurement(label="x\x1b[31m", invalid="busy\x1b[2J"), make.measurement()
    )
    path.write_text(path.read_text(encoding="utf-8") + '{"type": "footer", "fin', encoding="utf-8")
    done = command("export", "night", "--to", "bencher")
    assert (0, "night.jsonl ends in the middle of a line" in done.stderr) == (done.exit_code, True)
    assert "\x1b" not in done.stderr
    saved("day", make.measurement())
    cases = [
        (("day", "--to", "junit"), "--to is 'junit'; expected one of pytest-benchmark"),
        (("absent", "--to", "bencher"), "absent.jsonl"),
        (("day", "day", "--to", "bencher"), "is twice in .roofline/runs/day.jsonl; expected"),
    ]
    for arguments, sentence in cases:
        assert sentence in refused("export", *arguments)
