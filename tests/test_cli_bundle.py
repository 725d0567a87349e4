"""`roofline bundle` as a user types it, and its reproducer as support runs it: where pytest-roofline is not."""

import csv
import io
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

from pytest_roofline.cli import main
from pytest_roofline.core.records import Header, Judgement, SessionRecord
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.judging.runs import encode_line

ROOT = Path(__file__).parents[1]
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
    from pytest_roofline.measuring.devices.fake import FakeDevice

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
    roofline.measure(lambda: pytestconfig.fake.work(SECONDS * size), work=Work(read_bytes=10**6), later=True)
"""
# Read by every Python that finds it: of what is installed only pytest, torch and what these ask for can be imported.
WITHOUT = """
import sys
from importlib.machinery import PathFinder

ALLOWED = {
    "pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "torch", "torchgen", "functorch",
    "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec", "filelock", "typing_extensions", "setuptools",
}


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if path is not None or name in ALLOWED:
            return None
        spec = PathFinder.find_spec(name)
        place = "" if spec is None else str(spec.origin or list(spec.submodule_search_locations))
        if "site-packages" in place or (name == "pytest_roofline" and "reproduce/lib" not in place):
            raise ModuleNotFoundError(f"{name} is not there", name=name)


# Packages in development have finders of their own, which know where the plugin lies.
sys.meta_path[:] = [Refuse(), *(one for one in sys.meta_path if "editable" not in repr(one))]
"""
TEST_ID, LABEL = "test_copy.py::test_copy[2]", "copy[2]"


@pytest.fixture
def checkout(make, tmp_path, monkeypatch):
    """A checkout with a slow test, and its run: 2 ms in three processes, where 1 ms was known."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("conftest.py", CONFTEST), ("test_copy.py", TEST), ("helpers.py", "SECONDS = 1e-3\n")):
        Path(name).write_text(text, encoding="utf-8")
    save(make, tmp_path)
    return tmp_path


def save(
    make, folder, test_id=TEST_ID, label=LABEL, red=True, device_type="fake", seconds=2e-3, reference_s=1e-3,
    failure="", **more,
):  # fmt: skip
    samples = Samples((seconds, seconds, seconds / 2), 1, 1e-9, blocks=(Block(2), Block(1, "thermal slowdown", 1.5e9)))
    key = make.key(label.partition("[")[0], parameters={"size": 2}, metric="traffic_GBps")
    told = {"key": key, "test_id": test_id, "label": label, "samples": samples, "work": make.copy(10**6)}
    processes = [make.measurement(process=f"{number:032x}", round=number, **told) for number in (1, 2, 3)]
    judged = Judgement(
        test_id, label, "REGRESSED" if red else "PASSED", 0.05, reason="+100.0 % time on node17, see /home/alice/x",
        estimate=math.log(2), interval=(math.log(1.9), math.log(2.1)), processes=3, new_s=seconds,
        reference_s=reference_s, source="baselines/h200.json",
        reference=(SessionRecord((1e-3, 1e-3), "GPU-1", "2026-01-01T00:00:00Z"),) if reference_s else (), **more,
    )  # fmt: skip
    outcome = make.outcome(processes[0], "failed" if red else "passed", by_verdict=red and not failure, reason=failure)
    environment = make.environment(device_type=device_type)
    header = Header("night", "2100-01-01T00:00:00Z", ("pytest", "--roofline-budget", "0.05"), "t", environment)
    path = folder / ".roofline" / "runs" / "night.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(map(encode_line, (header, *processes, outcome, *([] if failure else [judged])))), encoding="utf-8"
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


def reproduced(folder, tmp_path, *arguments, **environment):
    """What `reproduce.py` prints and its exit status, where nothing but pytest and torch can be imported."""
    without = tmp_path / "without"
    without.mkdir(exist_ok=True)
    (without / "sitecustomize.py").write_text(WITHOUT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, folder / "reproduce" / "reproduce.py", *arguments],
        env=os.environ | {"PYTHONPATH": str(without)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout + done.stderr, done.returncode


def test_the_worst_test_is_packed_with_all_that_support_asks_for(checkout):
    lines = bundle("night").stdout.splitlines()
    assert re.fullmatch(r"roofline-bundle-copy-2\.zip: \d+ files, \d+ kB", lines[0])
    assert "about REGRESSED copy[2]" == lines[1]
    assert "read it before you send it: no rule finds every name" == lines[-1]
    folder = unpacked()
    assert {
        "README.txt", "verdicts.json", "samples.csv", "run.jsonl", "environment.json", "explain.txt", "reproduce",
    } == {path.name for path in folder.iterdir()}  # fmt: skip


def test_the_first_page_says_what_happened_in_the_order_in_which_one_asks(checkout):
    bundle("night")
    lines = (unpacked() / "README.txt").read_text(encoding="utf-8").splitlines()
    assert [
        "REGRESSED copy[2]",
        "  test        test_copy.py::test_copy[2]",
        "  measured    2.00 ms, 1.00 GB/s, 3 processes",
        "  expected    1.00 ms, 2.00 GB/s, 2 processes (baselines/h200.json)",
        "  difference  +100.0 % time, 99 % interval +90.0 … +110.0 %, tolerance 5 %",
        "  hardware    NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0",
        "  reason      +100.0 % time on node17, see path-1",
    ] == lines[2:9]
    assert "  cd reproduce && python reproduce.py" in lines


def test_verdicts_samples_and_environment_can_be_read_by_programs(checkout):
    bundle("night")
    folder = unpacked()
    (verdict,) = json.loads((folder / "verdicts.json").read_text())
    assert ("REGRESSED", True, True, 2e-3, 1e-3) == tuple(
        verdict[name] for name in ("verdict", "failed", "chosen", "seconds", "reference_seconds")
    )
    rows = list(csv.DictReader(io.StringIO((folder / "samples.csv").read_text())))
    assert 9 == len(rows)
    assert [
        ("1", "1", "1", "", "0.002"),
        ("1", "1", "2", "", "0.002"),
        ("1", "2", "3", "thermal slowdown", "0.001"),
    ] == [tuple(row[name] for name in ("round", "block", "sample", "excluded", "seconds")) for row in rows[:3]]
    assert ["", "1500000000.0"] == [rows[0]["clock_hz"], rows[2]["clock_hz"]]
    environment = json.loads((folder / "environment.json").read_text())["environment"]
    assert ("host-1", "NVIDIA H200") == (environment["host"]["name"], environment["device"]["product"])


def test_the_run_in_the_archive_is_explained_as_the_one_outside(checkout):
    bundle("night")
    folder = unpacked()
    told = CliRunner().invoke(main, ["explain", str(folder / "run.jsonl")])
    assert 0 == told.exit_code
    assert told.stdout.splitlines()[-1].startswith("REGRESSED: +100.0 % time")
    assert "samples by process" in (folder / "explain.txt").read_text(encoding="utf-8")
    assert "baseline baselines/h200.json" in (folder / "explain.txt").read_text(encoding="utf-8")


def test_two_bundles_of_one_run_are_the_same_file(checkout):
    bundle("night", "-o", "a.zip")
    bundle("night", "-o", "b.zip")
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()


def test_the_files_of_the_checkout_travel_without_names(checkout):
    bundle("night")
    tests = unpacked() / "reproduce" / "tests"
    assert {"conftest.py", "helpers.py", "pytest.ini", "test_copy.py"} == {path.name for path in tests.iterdir()}
    assert "# Made by user-1 for path-2." in (tests / "test_copy.py").read_text()


def test_folders_that_are_called_like_somebody_are_renamed_alike_in_files_and_ids(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "alice"
    folder.mkdir()
    for name, text in (("conftest.py", CONFTEST), ("test_copy.py", TEST), ("helpers.py", "SECONDS = 1e-3\n")):
        (folder / name).write_text(text, encoding="utf-8")
    run = save(make, tmp_path, f"alice/{TEST_ID}")
    bundle(run)
    reproduce = unpacked() / "reproduce"
    (case,) = json.loads((reproduce / "case.json").read_text())
    assert f"user-1/{TEST_ID}" == case["node_id"]
    assert {"conftest.py", "helpers.py", "test_copy.py"} == {
        path.name for path in (reproduce / "tests/user-1").iterdir()
    }


def test_code_that_names_somebody_is_not_given_away(checkout):
    Path("test_copy.py").write_text(TEST.replace("def test_copy", "def test_by_alice(): pass\n\ndef test_copy"))
    told = bundle("night").stdout
    assert "the code of test_copy.py names what is redacted; --keep would let it pass" in told
    assert not (unpacked() / "reproduce").exists()


def test_what_is_kept_is_said_and_stays(checkout):
    result = bundle("night", "--keep", "paths,users", "--keep=hosts")
    assert "kept as they are: hosts, paths, users" in result.stdout
    assert "see /home/alice/x" in (unpacked() / "README.txt").read_text()


def test_json_tells_programs_the_same(checkout):
    told = json.loads(bundle("night", "--json", "-o", "x.zip").stdout)
    assert ("x.zip", True, [], []) == tuple(told[name] for name in ("archive", "reproducer", "left_out", "kept"))
    assert [{"test": TEST_ID, "label": LABEL, "verdict": "REGRESSED"}] == told["tests"]
    assert {"values": 1, "times": 4} == told["replaced"]["devices"]
    assert "reproduce/reproduce.py" in told["files"]


def test_where_nothing_failed_it_says_so_and_writes_nothing(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(make, tmp_path, red=False)
    assert "failed, so there is nothing to reproduce; name one with --test: copy[2]" in bundle("night", status=2).output
    assert [] == list(tmp_path.glob("*.zip"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("gone",), "does not exist"),
        (("night", "--test", "nonsense"), "no test whose name holds 'nonsense'"),
        (("night", "--keep", "nonsense"), "--keep names nonsense; expected some of secrets, urls"),
        (("night", "-o", "no/x.zip"), "cannot be written"),
        (("night", "-o", "helpers.py"), "exists already"),
    ],
)
def test_what_cannot_be_used_is_told_in_a_sentence(checkout, arguments, told):
    assert told in bundle(*arguments, status=2).output


def test_without_the_sources_there_is_no_reproducer_and_the_commands_are_told(checkout):
    Path("test_copy.py").unlink()
    result = bundle("night")
    assert "not in the reproducer: copy[2]: test_copy.py is not below path-" in result.stdout
    folder = unpacked()
    assert not (folder / "reproduce").exists()
    page = (folder / "README.txt").read_text(encoding="utf-8")
    assert "There is no reproducer:" in page
    assert "python -m pytest 'test_copy.py::test_copy[2]'" in page


def test_sources_are_found_above_the_run_and_where_they_are_said_to_be(checkout, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    kept = checkout / ".roofline/runs/night.jsonl"
    copied = shutil.copy(kept, tmp_path / "night.jsonl")
    asked = ([kept], [copied], [copied, "--sources", checkout])
    told = [json.loads(bundle(*words, "-o", f"{number}.zip", "--json").stdout) for number, words in enumerate(asked)]
    assert [True, False, True] == [one["reproducer"] for one in told]


def test_the_reproducer_measures_the_test_alone_and_finds_it_slow(checkout, tmp_path):
    bundle("night")
    text, status = reproduced(unpacked(), tmp_path, "--processes", "2")
    assert (1, [
        "test_copy.py::test_copy[2]",
        "  recorded on NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0",
        "  process 1 of 2 …",
    ]) == (status, text.splitlines()[:3])  # fmt: skip
    assert [
        "  process 2 of 2 …",
        "  copy[2]",
        "    here      2.00 ms, 1.00 GB/s, 2 processes",
        "    recorded  2.00 ms, 1.00 GB/s, 3 processes",
        "    baseline  1.00 ms, 2.00 GB/s",
        "    measure(later=…) is not known here and was left out",
        "    here / baseline: 2.000, tolerance 5 %: SLOW, it reproduces",
    ] == text.splitlines()[4:]


def test_the_reproducer_passes_where_it_is_as_fast_as_the_baseline(checkout, tmp_path):
    bundle("night")
    folder = unpacked()
    (folder / "reproduce/tests/helpers.py").write_text("SECONDS = 0.52e-3\n", encoding="utf-8")
    text, status = reproduced(folder, tmp_path, "--processes", "1")
    assert (0, "    here / baseline: 1.040, tolerance 5 %: fast, it does not reproduce") == (
        status,
        text.splitlines()[-1],
    )


def test_a_reproducer_that_measures_nothing_says_why(checkout, tmp_path):
    bundle("night")
    text, status = reproduced(unpacked(), tmp_path, "--processes", "1", BROKEN="1")
    assert (2, True, True) == (status, "needs more than there is" in text, "could not be measured: the test" in text)


def test_a_test_below_a_limit_is_held_against_that(checkout, make, tmp_path):
    save(make, checkout, reference_s=None, limit_s=1.96e-3)
    bundle("night")
    folder = unpacked()
    assert (
        "  expected    at most 1.96 ms, 1.02 GB/s (baselines/h200.json)"
        in (folder / "README.txt").read_text().splitlines()
    )
    text, status = reproduced(folder, tmp_path, "--processes", "1")
    assert (1, ["    limit     1.96 ms, 1.02 GB/s", "    here / limit: 1.020: SLOW, it reproduces"]) == (
        status,
        [line for line in text.splitlines() if "limit" in line],
    )


def test_a_time_that_nothing_tells_of_is_neither_slow_nor_fast(checkout, make, tmp_path):
    save(make, checkout, reference_s=None, red=False)
    bundle("night", "--test", "copy")
    text, status = reproduced(unpacked(), tmp_path, "--processes", "1")
    assert (2, "    here / recorded: 1.000, tolerance 5 %: as recorded; whether that is slow, nothing tells") == (
        status,
        text.splitlines()[-1],
    )


@pytest.mark.parametrize(
    ("here", "status", "told"),
    [
        ("raise ValueError('bits are lost')", 1, "  it FAILS here too, it reproduces"),
        ("pass", 0, "  it does not fail here, it does not reproduce"),
        ("raise OSError('no such file')", 2, "  could not be measured: pytest failed; its output is above"),
        ("roofline.memory(print)", 2, "  could not be measured: the test measured nothing, or was skipped; its output"),
    ],
)
def test_a_test_that_failed_for_itself_is_asked_whether_it_fails_again(checkout, make, tmp_path, here, status, told):
    save(make, checkout, failure="ValueError: bits flipped")
    Path("test_copy.py").write_text(f"{TEST}    {here}\n", encoding="utf-8")
    bundle("night")
    folder = unpacked()
    assert "Of a test that FAILED for itself: 0 it does not fail" in (folder / "README.txt").read_text()
    assert "no verdict: the test failed for itself: ValueError: bits flipped" in (folder / "explain.txt").read_text()
    text, found = reproduced(folder, tmp_path, "--processes", "1")
    assert status == found, text
    assert told in text


def test_a_test_is_given_the_measurement_that_the_plugin_gives(checkout, tmp_path):
    asked = "peak_bytes=True, held_bytes=True, first_calls=2, compiles=True)"
    checks = (
        "    assert (found.traffic_GBps, found.verified, found.ranks) == (0.5, None, None)\n"
        "    assert (found.key.name, found.key.benchmark, found.key.parameters) == ('', 'copy', {'size': 2})\n"
        "    assert found.compile_s >= 0 and len(found.samples.first_calls_s) == 2\n"
    )
    text = TEST.replace("roofline.measure(", "found = roofline.measure(").replace("later=True)", asked)
    Path("test_copy.py").write_text(text + checks, encoding="utf-8")
    bundle("night")
    told, status = reproduced(unpacked(), tmp_path, "--processes", "1")
    assert (1, True) == (status, "SLOW, it reproduces" in told), told


def test_what_is_measured_before_memory_is_followed_counts(checkout, tmp_path):
    Path("test_copy.py").write_text(f"{TEST}    roofline.memory(print)\n", encoding="utf-8")
    bundle("night")
    text, status = reproduced(unpacked(), tmp_path, "--processes", "1")
    assert (1, True) == (status, "SLOW, it reproduces" in text), text


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("[]", "names no test"),
        ("{", "is not what `roofline bundle` wrote"),
        ("[1]", "is not what `roofline bundle` wrote"),
        ('"x"', "is not what `roofline bundle` wrote"),
        ("no seconds", "has no time"),
        ("no lib", "reproduce.py: ModuleNotFoundError: pytest_roofline is not there; nothing was found out"),
    ],
)
def test_whatever_goes_wrong_is_no_slowness(checkout, tmp_path, case, told):
    bundle("night")
    folder = unpacked() / "reproduce"
    if case == "no lib":
        shutil.rmtree(folder / "lib")
    else:
        plain = json.loads((folder / "case.json").read_text())
        plain[0]["recorded"][0]["seconds"] = []
        (folder / "case.json").write_text(json.dumps(plain) if case == "no seconds" else case)
    text, status = reproduced(folder.parent, tmp_path)
    assert (2, True, False) == (status, told in text, "Traceback" in text), text


def test_how_the_run_was_set_up_is_carried_and_what_cannot_be_is_said(checkout):
    Path("pytest.ini").write_text(
        "[pytest]\npythonpath = src\nroofline_rank_timeout = 9m\nroofline_launcher_args = --hostfile hosts\n"
        "addopts = --roofline-budget=3 -q\n"
    )
    Path("src").mkdir()
    Path("helpers.py").rename("src/helpers.py")
    Path("shapes.json").write_text("{}")
    Path("test_copy.py").write_text(f"{TEST}    open('shapes.json')\n")
    told = bundle("night").stdout
    assert "note: its files name shapes.json; only Python files are copied" in told
    assert "note: the run had --roofline-launcher-args, which hold where it ran" in told
    folder = unpacked() / "reproduce"
    (case,) = json.loads((folder / "case.json").read_text())
    assert ["--roofline-rank-timeout=9m", "--roofline-budget=0.05"] == case["options"]
    assert ("[pytest]\npythonpath = src\n", True) == (
        (folder / "tests/pytest.ini").read_text(),
        (folder / "tests/src/helpers.py").is_file(),
    )


def assert_measured(text, status):
    """It was measured; beside busy neighbours nobody can tell whether it is slow."""
    assert "    here      " in text, text
    assert {1: "SLOW, it reproduces", 2: "cannot tell: the time cannot be trusted"}[status] in text, text


def test_a_test_of_the_suite_is_measured_with_torch_alone(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # No machine copies in a femtosecond, so the outcome does not depend on this one.
    test_id = "perf_tests/test_memcpy.py::test_memcpy_h2h[4KiB]"
    run = save(make, tmp_path, test_id, "memcpy_h2h[4KiB]", device_type="cpu", reference_s=1e-15)
    bundle(run, "--sources", ROOT, "-o", "x.zip")
    text, status = reproduced(unpacked("x.zip"), tmp_path, "--processes", "1")
    assert_measured(text, status)


def test_ranks_are_started_and_measured_with_torch_alone(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test_id = "perf_tests/test_collectives.py::test_all_reduce[2ranks-1MiB-fp32]"
    run = save(make, tmp_path, test_id, "all_reduce[2ranks-1MiB-fp32]", device_type="cpu", reference_s=1e-15)
    bundle(run, "--sources", ROOT, "-o", "x.zip")
    text, status = reproduced(unpacked("x.zip"), tmp_path, "--processes", "1")
    assert_measured(text, status)


def blocks(language):
    """The fenced blocks of docs/bundle.md."""
    page = (ROOT / "docs" / "bundle.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_the_page_shows_what_the_command_prints(checkout):
    (commands, _), (printed, _) = blocks("sh"), blocks("text")
    told = [bundle(*shlex.split(line, comments=True)[2:]).stdout for line in commands.splitlines()]
    # How many files there are changes with the package.
    sizes = re.compile(r"\d+ files, \d+ kB")
    assert sizes.sub("", printed) == sizes.sub("", told[0])
    assert {"support.zip", "own.zip", "again.zip"} <= {path.name for path in checkout.iterdir()}


def test_the_page_shows_what_the_reproducer_prints(checkout, tmp_path):
    (_, commands), (_, printed) = blocks("sh"), blocks("text")
    Path("test_copy.py").write_text(TEST.replace(", later=True", ""), encoding="utf-8")
    bundle("night")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        env=os.environ | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    shown = re.sub(r"(measured on ).*", r"\1…", done.stdout)
    assert (1, printed) == (done.returncode, shown), done.stderr
