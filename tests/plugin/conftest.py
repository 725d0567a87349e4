"""A machine on a desk: pytest runs inside pytest, on a device whose clock only moves when a test says so."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import pytest_roofline.cli.main
from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.core.entries import Baseline

from .. import preloaded, warm_rounds  # noqa: F401

# Written beside the tests of an inner run. `script.json` says which device there is and how fast, round by round.
CONFTEST = '''
"""PYTEST_DONT_REWRITE: nothing is asserted here."""

import json
import os
import sys
import time
import types
from importlib import metadata
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPT = json.loads((HERE / "script.json").read_text())
if {"ROOFLINE_ROUND", "WITHOUT_TORCH"} & set(os.environ) and "torch" not in sys.modules:
    # A run on the fake device asks torch for its version, and importing all of it takes longer than all the rest.
    sys.modules["torch"] = torch = types.ModuleType("torch")
    torch.__version__, torch.version = metadata.version("torch"), types.SimpleNamespace(cuda=None, hip=None)
    torch.get_num_threads, torch.Tensor = lambda: 1, type("Tensor", (), {})


def round_number(config):
    from pytest_roofline.settings.round import in_round

    asked = in_round(config)
    return asked.number if asked else 1


def happen(event):
    """What a script can ask for in place of a factor."""
    if event == "crash":
        os.abort()
    if event == "fail":
        raise AssertionError("wrong in this round")
    if event == "skip":
        pytest.skip("not in this round")
    if event == "hang":
        # Whole or not at all: others wait for it.
        (HERE / "hanging.tmp").write_text(str(os.getpid()))
        (HERE / "hanging.tmp").rename(HERE / "hanging")
        time.sleep(600)


@pytest.hookimpl(optionalhook=True)
def pytest_roofline_device(config, name):
    from pytest_roofline.engine.devices.fake import FakeDevice

    (HERE / "opened").touch()
    config.fake = FakeDevice(**THROTTLE, **SCRIPT["device"])
    return config.fake


@pytest.fixture
def fake(pytestconfig):
    return pytestconfig.fake


@pytest.fixture
def busy(request):
    """Keeps the device busy for `seconds`, times what the script says of this test in this round."""
    factors = SCRIPT["slow"].get(request.node.name, SCRIPT["slow"].get("*", 1.0))
    rounds = factors if isinstance(factors, list) else [factors]
    factor = rounds[min(round_number(request.config), len(rounds)) - 1]
    happen(factor)
    return lambda seconds: request.config.fake.work(seconds * factor)


def hot(busy_s):
    """What slows the device itself down by now, as the script says of the test that runs."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")[2].partition(" ")[0]
    causes, since_s, until_s = HOT.get(test, HOT.get("*", ((), 0, 0)))
    return frozenset(causes if since_s < busy_s < until_s else ())


HOT = SCRIPT.get("hot")
# Asked at every call of a function, so not where nothing is said.
THROTTLE = {"throttle": hot} if HOT else {}
'''

# 2000 GB/s of traffic, below the datasheet's peak of the default fake device.
SUITE = """
import pytest
from pytest_roofline import Work

MIB = 2**20

@pytest.mark.parametrize("size_bytes", [64 * MIB, 1024 * MIB], ids=["64MiB", "1GiB"])
def test_copy(roofline, busy, size_bytes):
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    roofline.measure(lambda: busy(2 * size_bytes / 2e12), work=work)
"""

ONE = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

{marks}
def test_one(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""

# Five sessions differ by this much; a sixth is compared with them.
SCATTER = (1.0, 1.004, 0.996, 1.002, 0.998)


# In five sessions on five days: a spread of 1 %, so that 6 % more is neither surely slower nor surely not.
NOISY = (1.0, 1.013, 0.987, 1.008, 0.992)
Factor = float | str | list[float | str]
Hot = tuple[list[str], float, float]
ALWAYS = -1.0, 1e9


class Desk:
    """Runs suites on the fake device and reads what they leave behind."""

    def __init__(self, pytester: pytest.Pytester, recorded: dict[str, str]) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self._recorded = recorded
        # All that is said of a run; `test_terminal.py` and the golden cases look at what is shown without.
        self.verbose = ("-v",)
        self.pytester.makeconftest(CONFTEST)
        self.pytester.makefile(".ini", pytest="[pytest]\n")
        self.script()

    def script(
        self,
        *,
        slow: Factor | dict[str, Factor] = 1.0,
        hot: dict[str, Hot] | None = None,
        **device: object,
    ):
        """Say which device there is, and how much slower each test (or every one) is on it, as one factor or by round.

        `hot` has by test what slows the device itself down, since and until it has been busy for so many seconds.
        In place of a factor stand `crash`, `fail`, `skip` and `hang`; the last of a list holds for all later rounds.
        """
        factors = slow if isinstance(slow, dict) else {"*": slow}
        (self.path / "script.json").write_text(
            json.dumps({"device": device, "slow": factors, "hot": hot or {}})
        )

    @property
    def conftest(self) -> str:
        """The conftest.py of the inner run, to write it anew with more."""
        return (self.path / "conftest.py").read_text()

    def suite(self, text: str = SUITE, name: str = "test_suite") -> Path:
        """Put a test file in place."""
        path = self.path / f"{name}.py"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return path

    def one(self, marks: str = "") -> Path:
        """Put a file with a single test of a millisecond in place."""
        return self.suite(ONE.format(marks=marks))

    def ini(self, *lines: str) -> None:
        """Replace the ini file."""
        (self.path / "pytest.ini").write_text("\n".join(["[pytest]", *lines, ""]))

    def run(self, *args: str) -> pytest.RunResult:
        """pytest in this process. Ctrl-C inside ends the inner run only."""
        # Hypothesis would be imported anew in every inner run, which takes longer than all the rest.
        words = ["-p", "no:hypothesispytest", *self.verbose, *map(str, args)]
        if {"-q", "-v", "-vv", "no:terminal"} & {*words[2 + len(self.verbose) :]}:
            words[2 : 2 + len(self.verbose)] = []
        return self.pytester.runpytest_inprocess(*words, no_reraise_ctrlc=True)

    def subprocess(self, *args: str) -> pytest.RunResult:
        """pytest in a process of its own."""
        return self.pytester.runpytest_subprocess(*map(str, args))

    def five_runs(self, text: str = SUITE) -> list[str]:
        """Five saved runs of a suite on five days, as the options that compare with them."""
        return self.sessions(text, SCATTER, together=True, name="run")

    def five_runs_of_one(self, marks: str = "") -> list[str]:
        """Five saved runs of the single test of a millisecond, which then stands there with `marks`."""
        options = self.five_runs(ONE.format(marks=""))
        self.one(marks)
        return options

    def sessions(
        self, text: str = SUITE, scatter: tuple[float, ...] = NOISY, **more: Any
    ) -> list[str]:
        """A saved run for each day and factor, as the options that compare with them. Measured once, then scaled."""
        self.suite(text)
        if text not in self._recorded:
            self.script()
            result = self.run("-q", "--roofline-save=once")
            assert result.ret == 0, result.stdout.str()
            self._recorded[text] = self.run_path("once").read_text()
            self.run_path("once").unlink()
        return write_sessions(self.run_path("any").parent, self._recorded[text], scatter, **more)

    def five_sessions_of_one(self) -> list[str]:
        """Five sessions of the single test of a millisecond."""
        return self.sessions(ONE.format(marks=""))

    def run_path(self, name: str) -> Path:
        """Where a saved run lies."""
        return self.path / ".roofline" / "runs" / f"{name}.jsonl"

    def run_paths(self) -> list[Path]:
        """All run files of the desk, oldest first."""
        return sorted(
            (self.path / ".roofline" / "runs").glob("*.jsonl"),
            key=lambda path: path.stat().st_mtime_ns,
        )

    def last_run(self) -> Run:
        """The newest run file, read back."""
        return read_run(self.run_paths()[-1])

    def saved(self, name: str) -> Run:
        """A saved run, read back."""
        return read_run(self.run_path(name))

    def cli(self, *args: str) -> Result:
        """The `roofline` command, in the folder of the desk."""
        return CliRunner().invoke(
            pytest_roofline.cli.main.main,
            [str(argument) for argument in args],
            prog_name="roofline",
        )

    def baseline(
        self, folder: str = "baselines", *, slow: float = 1.0, text: str = SUITE
    ) -> Baseline:
        """Five saved runs, `slow` times as long, approved into a folder of baselines; the runs are removed.

        Approved once, then copied.
        """
        self.suite(text)
        path = self.path / folder / "h100.json"
        key = f"{slow} {text}"
        assert not path.exists()
        if key not in self._recorded:
            self._approve(folder, slow, text)
            self._recorded[key] = path.read_text()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._recorded[key])
        return read_baseline(path)

    def _approve(self, folder: str, slow: float, text: str) -> None:
        """Approve five saved runs, `slow` times as long, into a folder of baselines."""
        self.five_runs(text)
        paths = [self.run_path(f"run{index}") for index in range(len(SCATTER))]
        proposal = self.path / "proposal.json"
        assert self.cli("baseline", "propose", *map(str, paths), "-o", str(proposal)).exit_code == 0
        if slow != 1.0:
            raw = json.loads(proposal.read_text())
            for entry in raw["entries"]:
                for session in entry["sessions"]:
                    session["process_medians"] = [
                        value * slow for value in session["process_medians"]
                    ]
            proposal.write_text(json.dumps(raw))
        assert self.cli("baseline", "approve", str(proposal), "--into", folder).exit_code == 0
        for path in (*paths, proposal):
            path.unlink()


def write_sessions(
    folder: Path,
    content: str,
    scatter: tuple[float, ...] = NOISY,
    *,
    together: bool = False,
    name: str = "day",
) -> list[str]:
    """Save a run once for each factor, as of a day of its own; then the options that compare with these sessions.

    `together` lets all tests have their slow day on the same. They are `day1`, `day2` …, or `run0`, `run1` ….
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{name}{day + (name == 'day')}" for day in range(len(scatter))]
    for day, name in enumerate(names, 1):
        records = [json.loads(line) for line in content.splitlines()]
        # Each test has its slow day on another: what all did together would be the machine's.
        turns = [
            0
            if together
            else zlib.crc32(json.dumps(record.get("key", {}), sort_keys=True).encode())
            for record in records
        ]
        factors = [scatter[(day + turn) % len(scatter)] for turn in turns]
        scaled = [
            json.dumps(_as_of(record, name, f"2026-01-{day:02}", factor)) + "\n"
            for record, factor in zip(records, factors, strict=True)
        ]
        (folder / f"{name}.jsonl").write_text("".join(scaled))
    return [f"--roofline-against={name}" for name in names]


def _as_of(record: dict[str, Any], name: str, day: str, factor: float) -> dict[str, Any]:
    """A line of a run file, as of another run on another day, on which everything took `factor` times as long."""
    if record["type"] == "header":
        record |= {"run_id": name, "started": f"{day}T12:00:00Z"}
    if record["type"] == "measurement":
        record["process"] = f"{name}-{record['process']}"
        record["samples"]["seconds"] = [
            seconds * factor for seconds in record["samples"]["seconds"]
        ]
    return record


@pytest.fixture(scope="session")
def _recorded() -> dict[str, str]:
    return {}


@pytest.fixture
def desk(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    _recorded: dict[str, str],
    torch_compiler: None,
) -> Desk:
    """A folder with a fake device, in which pytest runs."""
    # Wide, so that sentences stay whole; `test_terminal.py` has a narrow one.
    monkeypatch.setenv("COLUMNS", "1000")
    for name in (
        "FORCE_COLOR",
        "NO_COLOR",
        "GITHUB_ACTIONS",
        "GITHUB_STEP_SUMMARY",
        "CI",
        "PYTEST_ADDOPTS",
    ):
        monkeypatch.delenv(name, raising=False)
    # For the processes that an inner run starts; this one has torch.
    monkeypatch.setenv("WITHOUT_TORCH", "1")
    warm_rounds.install(monkeypatch)
    return Desk(pytester, _recorded)


def texts(result: pytest.RunResult) -> str:
    """Everything that an inner run printed."""
    return f"{result.stdout.str()}\n{result.stderr.str()}"


@pytest.fixture
def sentence():
    """Checks a usage error: exit status 4, one sentence that holds all the given words, and no traceback."""

    def check(result: pytest.RunResult, *words: str) -> str:
        assert result.ret == pytest.ExitCode.USAGE_ERROR, texts(result)
        lines = [line for line in texts(result).splitlines() if line.startswith("ERROR: ")]
        assert len(lines) == 1, texts(result)
        assert "Traceback" not in texts(result)
        assert "INTERNALERROR" not in texts(result)
        for word in words:
            assert word in lines[0], lines[0]
        return lines[0]

    return check
