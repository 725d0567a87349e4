"""`roofline bundle` as a user types it, and what is in the archive as support runs it."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.bundle.making import chosen
from pytest_roofline.cli.main import main
from pytest_roofline.core.facts import Environment
from pytest_roofline.core.judgements import Judgement, SessionRecord
from pytest_roofline.core.records import Header
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.hardware import key_of

ROOT = Path(__file__).parents[2]
# A device whose clock only a test moves. It is no torch device, so that importing torch would be for its version alone.
CONFTEST = """
import sys
import types

import pytest

sys.modules["torch"] = torch = types.ModuleType("torch")
torch.__version__, torch.version = "2.13.0", types.SimpleNamespace(cuda=None, hip=None)
torch.get_num_threads, torch.Tensor = lambda: 1, type("Tensor", (), {})


@pytest.hookimpl(optionalhook=True)
def pytest_roofline_device(config, name):
    from pytest_roofline.engine.devices.fake import FakeDevice

    import pytest_roofline

    if "elsewhere" in pytest_roofline.__file__:
        print("it came in the archive")
    config.fake = FakeDevice()
    return config.fake
"""
TEST = """
import os

import pytest

from helpers import SECONDS
from pytest_roofline import Work

# Made by alice for /home/alice/project.


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.roofline(gate=True)
def test_copy(roofline, pytestconfig, size):
    if os.environ.get("BROKEN"):
        pytest.skip("needs more than there is")
    roofline.measure(lambda: pytestconfig.fake.work(SECONDS * size), work=Work(read_bytes=10**9))
"""
REFERENCE = tuple(
    SessionRecord((1e-3, 1.002e-3, 0.998e-3), "GPU-1", f"2026-01-0{day}T00:00:00Z")
    for day in range(1, 4)
)
TEST_ID, LABEL = "test_copy.py::test_copy[2]", "copy[2]"


@pytest.fixture
def checkout(make, tmp_path, monkeypatch):
    """A checkout with a slow test, and its run: 2 ms in three processes, where 1 ms was known."""
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("conftest.py", CONFTEST),
        ("test_copy.py", TEST),
        ("helpers.py", "SECONDS = 1e-3\n"),
    ):
        Path(name).write_text(text, encoding="utf-8")
    save(make, tmp_path)
    return tmp_path


def save(
    make, folder, test_id=TEST_ID, label=LABEL, red=True, seconds=2e-3, reference_s=1e-3,
    failure="", **more,
):  # fmt: skip
    samples = Samples(
        (seconds, seconds, seconds / 2),
        1,
        1e-9,
        blocks=(Block(2), Block(1, "thermal slowdown", 1.5e9)),
    )
    environment = Environment(FakeDevice().facts(), make.environment().host, {"torch": "2.13.0"})
    key = make.key(
        label.partition("[")[0],
        parameters={"size": 2},
        metric="traffic_GBps",
        hardware=key_of(environment),
        cache="warm",
    )
    told = {
        "key": key,
        "test_id": test_id,
        "label": label,
        "samples": samples,
        "work": Work(read_bytes=10**9),
    }
    processes = [
        make.measurement(process=f"{number:032x}", round=number, **told) for number in (1, 2, 3)
    ]
    judged = Judgement(
        test_id, label, "REGRESSED" if red else "PASSED", 0.05, reason="+100.0 % time on node17, see /home/alice/x",
        estimate=math.log(2), interval=(math.log(1.9), math.log(2.1)), processes=3, new_s=seconds,
        reference_s=reference_s, source="baselines/h100.json",
        reference=REFERENCE if reference_s else (), **more,
    )  # fmt: skip
    outcome = make.outcome(
        processes[0], "failed" if red else "passed", by_verdict=red and not failure, reason=failure
    )
    header = Header(
        "night", "2100-01-01T00:00:00Z", ("pytest", "--roofline-budget=3"), "t", environment
    )
    path = folder / ".roofline" / "runs" / "night.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(map(encode_line, (header, *processes, outcome, *([] if failure else [judged])))),
        encoding="utf-8",
    )
    return path


def bundle(*arguments, status=0):
    result = CliRunner().invoke(main, ["bundle", *map(str, arguments)])
    assert status == result.exit_code, result.output
    return result


def unpacked(path="roofline-bundle-copy-2.zip"):
    with zipfile.ZipFile(path) as archive:
        archive.extractall("unpacked")
    return Path("unpacked", "roofline-bundle").resolve()


def test_the_worst_test_is_packed_with_all_that_support_asks_for(checkout):
    Path("pytest.ini").write_text(
        "[pytest]\npythonpath = src\nroofline_rank_timeout = 9m\naddopts = -q\n"
    )
    Path("src").mkdir()
    Path("helpers.py").rename("src/helpers.py")
    lines = bundle("night").stdout.splitlines()
    assert re.fullmatch(r"roofline-bundle-copy-2\.zip: \d+ files, [\d.]+ [kM]B", lines[0])
    folder = unpacked()
    (wheel,) = folder.glob("*.whl")
    options = "--roofline-rounds=auto --roofline-budget=3"
    commands = [
        f"  python -m pip install ./{wheel.name}",
        f"  cd tests && python -m pytest 'test_copy.py::test_copy[2]' {options}",
    ]
    assert lines[1:] == [
        "about REGRESSED copy[2]",
        "to measure it again: unpack it, then in roofline-bundle",
        *commands,
        "replaced by placeholders: paths: 2, devices: 2, hosts: 1, users: 1",
        "read it before you send it: no rule finds every name",
    ]
    page = (folder / "README.txt").read_text(encoding="utf-8").splitlines()
    assert page[1] == "It ran on NVIDIA H100 80GB HBM3, driver 550.54, kernel 6.8, torch 2.13.0."
    assert page[3:5] == ["REGRESSED copy[2]", "  test_copy.py::test_copy[2]"]
    assert page[5].startswith("  REGRESSED: +100.0 % time")
    assert [line for line in page if line.startswith(("  python -m", "  cd"))] == commands
    assert {path.relative_to(folder / "tests").as_posix() for path in (folder / "tests").rglob("*.*")} == {
        "baselines/h100.json", "conftest.py", "src/helpers.py", "pytest.ini", "test_copy.py",
    }  # fmt: skip
    assert "# Made by user-1 for path-2." in (folder / "tests/test_copy.py").read_text()
    assert (folder / "tests/pytest.ini").read_text() == (
        "[pytest]\npythonpath = src\nroofline_rank_timeout = 9m\n"
    )
    told = CliRunner().invoke(main, ["explain", str(folder / "run.jsonl")])
    assert told.stdout.splitlines()[-1].startswith("REGRESSED: +100.0 % time")
    explained = (folder / "explain.txt").read_text(encoding="utf-8")
    assert "samples by process" in explained
    assert "baseline baselines/h100.json" in explained


def test_two_bundles_of_one_run_are_the_same_file_and_json_tells_what_is_in_it(checkout):
    bundle("night", "-o", "a.zip")
    told = json.loads(bundle("night", "-o", "b.zip", "--json").stdout)
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()
    assert ("b.zip", 2, [], []) == (
        told["archive"],
        len(told["commands"]),
        told["left_out"],
        told["kept"],
    )
    assert [{"test": TEST_ID, "label": LABEL, "verdict": "REGRESSED"}] == told["tests"]
    assert 2 == told["replaced"]["paths"]
    assert {"tests/test_copy.py", "tests/baselines/h100.json"} <= set(told["files"])


def test_folders_that_are_called_like_somebody_are_renamed_alike_in_files_and_ids(
    make, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "alice"
    folder.mkdir()
    for name, text in (
        ("conftest.py", CONFTEST),
        ("test_copy.py", TEST),
        ("helpers.py", "SECONDS = 1e-3\n"),
    ):
        (folder / name).write_text(text, encoding="utf-8")
    run = save(make, tmp_path, f"alice/{TEST_ID}")
    bundle(run)
    folder = unpacked()
    assert f"pytest 'user-1/{TEST_ID}'" in (folder / "README.txt").read_text()
    assert {"conftest.py", "helpers.py", "test_copy.py"} == {
        path.name for path in (folder / "tests/user-1").iterdir()
    }


def test_what_cannot_be_used_is_told_in_a_sentence(checkout, make):
    cases = [
        (("gone",), "does not exist"),
        (("night", "--test", "nonsense"), "no test whose name holds 'nonsense'; it has copy[2]"),
        (("night", "--test", ""), "no test whose name holds ''"),
        (("night", "--keep", "nonsense"), "--keep names nonsense; expected some of secrets, urls"),
        (
            ("night", "-o", "no/x.zip"),
            "no/x.zip cannot be written: No such file or directory; choose another place",
        ),
        (
            ("night", "-o", "helpers.py/x.zip"),
            "cannot be written: Not a directory; choose another place",
        ),
        (("night", "-o", "."), "is a folder; expected the archive's own name behind -o"),
        (("night", "-o", "helpers.py"), "exists already; choose another name with -o"),
    ]
    for arguments, told in cases:
        assert told in bundle(*arguments, status=2).output
    save(make, checkout, red=False)
    assert (
        "failed, so there is nothing to reproduce; name one with --test: copy[2]"
        in bundle("night", status=2).output
    )
    assert list(checkout.glob("*.zip")) == []


def test_an_archive_in_which_a_secret_remains_is_not_written_and_file_and_line_are_told(checkout):
    # None of its parts shows it: a number, a colon and a name of Python.
    Path("helpers.py").write_text(
        f"SECONDS = 1e-3\nKEYS = lambda: {{123456789:{'aB3dE5gH7jK9mN2' * 9:.35}}}\n"
    )
    told = bundle("night", status=2).stderr
    assert (
        "roofline: line 2 of tests/helpers.py would still hold what looks like a secret, so nothing was writ"
        in told
    )
    assert list(checkout.glob("*.zip")) == []
    bundle("night", "--keep", "secrets")


def test_tests_that_differ_in_a_name_only_are_refused(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tests = [
        make.measurement(1e-3, test_id=f"t.py::test_h[{n}]", label=f"h[{n}]")
        for n in ("node1", "node1.corp.x")
    ]
    path = make.save(tmp_path / "r.jsonl", *tests)
    path.write_text(path.read_text().replace('"name": "node"', '"name": "node1"'), encoding="utf-8")
    assert (
        "has 2 tests, and 1 without names: they differ in a name only; --keep"
        in bundle(path, "--test=h", status=2).output
    )
    bundle(path, "--test=h", "--keep=hosts")


def test_sources_are_found_above_the_run_and_where_they_are_said_to_be(
    checkout, tmp_path, monkeypatch
):
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    kept = checkout / ".roofline/runs/night.jsonl"
    copied = shutil.copy(kept, tmp_path / "night.jsonl")
    asked = ([kept], [copied], [copied, "--sources", checkout])
    told = [
        json.loads(bundle(*words, "-o", f"{number}.zip", "--json").stdout)
        for number, words in enumerate(asked)
    ]
    assert [2, 0, 2] == [len(one["commands"]) for one in told]


def test_named_tests_are_chosen_worst_first_and_each_once(make, tmp_path):
    records = []
    for name, slower in (("green", 0.0), ("red", 0.2), ("redder", 0.9)):
        one = make.measurement(key=make.key(name))
        word = "REGRESSED" if slower else "PASSED"
        judged = Judgement(one.test_id, one.label, word, 0.05, estimate=math.log1p(slower))
        records += [
            one,
            judged,
            make.outcome(one, "failed" if slower else "passed", by_verdict=bool(slower)),
        ]
    rows = rows_of_run(make.run(tmp_path / "r.jsonl", *records))
    cases = [
        ((), ["redder[64MiB]"]),
        (
            ("green", "redder", "test_memcpy.py::test_redder[64MiB]"),
            ["redder[64MiB]", "green[64MiB]"],
        ),
        (("red",), ["redder[64MiB]", "red[64MiB]"]),
        (("red[64MiB]",), ["red[64MiB]"]),
    ]
    for tests, expected in cases:
        assert [rows[index].label for index in chosen(rows, tests, "r")] == expected, tests
    # All measurements of the worst test are meant.
    two = [
        make.measurement(key=make.key(name=name), test_id="t.py::test_two") for name in ("a", "b")
    ]
    rows = rows_of_run(make.run(tmp_path / "two.jsonl", *two, make.outcome(two[0], "failed")))
    assert [rows[index].label for index in chosen(rows, (), "r")] == [
        "memcpy_d2d[64MiB].a",
        "memcpy_d2d[64MiB].b",
    ]


def test_support_sees_what_the_run_saw(checkout, make, tmp_path):
    bundle("night")
    folder, installed = unpacked(), tmp_path / "elsewhere"
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", installed, wheel], check=True, timeout=300)
    (line,) = [
        line.strip()
        for line in (folder / "README.txt").read_text().splitlines()
        if "python -m pytest" in line
    ]
    # What of this environment is in development lies behind it.
    done = subprocess.run(
        shlex.split(line.partition("&&")[2].replace("python -m", f"{sys.executable} -m", 1)),
        cwd=folder / "tests",
        env=os.environ | {"PYTHONPATH": str(installed), "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "copy[2]: +100.0 % time (500 GB/s, baseline 1000 GB/s) REGRESSED" in done.stdout
    assert "it came in the archive" in done.stdout
    # What was held against a limit has that in its baseline.
    save(make, checkout, reference_s=None, limit_s=1.9e-3)
    bundle("night", "-o", "limit.zip")
    (entry,) = json.loads((unpacked("limit.zip") / "tests/baselines/h100.json").read_text())[
        "entries"
    ]
    assert (entry["kind"], entry["metric"], entry["value"]) == ("threshold", "time_s", 1.9e-3)


def test_the_archive_says_what_the_test_raised_what_is_kept_and_why_it_cannot_be_measured(
    checkout, make
):
    save(make, checkout, failure="ValueError: bits flipped in /home/alice/x")
    Path("test_copy.py").write_text(
        TEST.replace("def test_copy", "def alice(): pass\n\ndef test_copy")
    )
    printed = bundle("night", "--keep", "paths,emails", "--keep=hosts", "-o", "code.zip").stdout
    why = "the code of test_copy.py names what is redacted; --keep would let it pass"
    assert f"cannot be measured from it: {TEST_ID}: {why}" in printed
    assert "kept as they are: emails, hosts, paths" in printed
    Path("test_copy.py").unlink()
    assert f"{TEST_ID}: test_copy.py is not below path-" in bundle("night").stdout
    folder = unpacked()
    assert {"README.txt", "explain.txt", "run.jsonl"} == {path.name for path in folder.iterdir()}
    page = (folder / "README.txt").read_text(encoding="utf-8")
    assert (
        "FAILED copy[2]\n  test_copy.py::test_copy[2]\n  no verdict: the test failed for itself: Value"
        in page
    )
    assert "These cannot be measured from this archive:" in page
    assert "installed, run them in a checkout of the tests." in page


def blocks(language):
    """The fenced blocks of docs/exchange.md."""
    page = (ROOT / "docs" / "exchange.md").read_text(encoding="utf-8")
    chapter = page.partition("## A bundle for support")[2]
    return re.findall(rf"^```{language}\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_the_command_prints(checkout):
    (commands,), (printed,) = blocks("sh"), blocks("text")
    told = [bundle(*shlex.split(line, comments=True)[2:]).stdout for line in commands.splitlines()]
    # How many files there are changes with the package.
    sizes = re.compile(r"\d+ files, [\d.]+ [kM]B")
    assert sizes.sub("", printed) == sizes.sub("", told[0])
    assert {"support.zip", "own.zip", "again.zip"} <= {path.name for path in checkout.iterdir()}
