"""What the tests of measuring share: a fake machine and a suite on a fake device."""

import json
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.engine import host

from .. import preloaded  # noqa: F401


class FakeHost:
    """A machine's /proc and /sys in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        """One file of it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def memory(self, total: int, available: int | None) -> None:
        """/proc/meminfo, from bytes."""
        lines = [f"MemTotal:       {total // 1024} kB", "MemFree:          1 kB"]
        if available is not None:
            lines.append(f"MemAvailable:   {available // 1024} kB")
        self.write("proc/meminfo", "\n".join(lines) + "\n")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An empty machine, which the host's facts are read from."""
    root = tmp_path / "machine"
    root.mkdir()
    monkeypatch.setattr(host, "ROOT", root)
    host.host_facts.cache_clear()
    yield FakeHost(root)
    host.host_facts.cache_clear()


class Suite:
    """A suite of tests that measure a fake device, run within this process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def device(self, arguments: str = "", body: str = "") -> None:
        """The device: the arguments of `FakeDevice` and what else its conftest holds."""
        self.pytester.makeconftest(
            '"""PYTEST_DONT_REWRITE"""\n'
            "import pytest\n"
            "from pytest_roofline.engine.devices.fake import FakeDevice\n"
            f"DEVICE = FakeDevice({arguments})\n"
            "def pytest_roofline_device(config, name):\n"
            "    return DEVICE\n"
            "@pytest.fixture\n"
            "def fake():\n"
            "    return DEVICE\n" + body
        )

    def run(self, source: str, *arguments: str, **keywords: object) -> pytest.RunResult:
        """The result of a test module with the usual imports."""
        header = "import functools\nimport weakref\nimport pytest\nimport torch\nfrom pytest_roofline import Work\n"
        self.pytester.makepyfile(
            header + "WORK = Work(read_bytes=1000, write_bytes=1000, payload_bytes=1000)\n" + source
        )
        # Hypothesis imports itself anew for every summary, which takes a second.
        self.result = self.pytester.runpytest_inprocess(
            "-p", "no:hypothesispytest", *arguments, **keywords
        )
        return self.result

    @property
    def run_file(self) -> Path:
        """Where the only run was saved."""
        (path,) = (self.pytester.path / ".roofline" / "runs").glob("*.jsonl")
        return path

    def saved(self) -> Run:
        """The only run, read back."""
        return read_run(self.run_file)

    def lines(self, kind: str) -> list[dict]:
        """The run file's lines of a type, as plain data."""
        lines = [
            json.loads(line) for line in self.run_file.read_text(encoding="utf-8").splitlines()
        ]
        return [line for line in lines if line["type"] == kind]


@pytest.fixture
def suite(pytester):
    """A suite on a fake H100."""
    suite = Suite(pytester)
    suite.device()
    return suite
