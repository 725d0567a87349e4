"""Small records for tests: every argument has a default, so that a test names only what it is about."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from pytest_roofline.core.entries import Entry, Session
from pytest_roofline.core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from pytest_roofline.core.keys import Key
from pytest_roofline.core.records import Footer, Header, Measurement, Outcome
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work

# Shared machines pause at will, so no example has a deadline; CI tries the same examples every time.
settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("shared")


MIB = 2**20
STARTED = "2026-01-02T03:04:05Z"


class Make:
    """Factories of records on one made-up accelerator."""

    def hardware(self, **changes):
        facts = {"product": "h200-sxm", "memory": "141gb", "partition": "none", "devices": 1, "link": "none"}
        return HardwareKey(**(facts | changes))

    def key(self, benchmark="memcpy_d2d", size_bytes=64 * MIB, **changes):
        facts = {
            "parameters": {"size_bytes": size_bytes},
            "metric": "traffic_GBps",
            "hardware": self.hardware(),
            "cache": "rotate",
            "timing": "device",
        }
        return Key(benchmark, **(facts | changes))

    def copy(self, size_bytes=64 * MIB):
        return Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)

    def measurement(self, *seconds, key=None, **changes):
        key = key or self.key()
        facts = {
            "test_id": f"test_memcpy.py::test_{key.label}",
            "label": key.label,
            "process": "process-1",
            "work": self.copy(key.parameters.get("size_bytes", 64 * MIB)),
            "samples": Samples(seconds or (1e-3,), iterations=10, tick_s=1e-9),
        }
        return Measurement(key, **(facts | changes))

    def environment(self, product="NVIDIA H200", driver="570.86", device_type="cuda", uuid="GPU-1"):
        return Environment(
            device=DeviceFacts(device_type, product, driver=driver, uuid=uuid),
            host=HostFacts("node", "AMD EPYC", 8, 8, 2**36, 2**36, kernel="6.8"),
            software={"torch": "2.13.0"},
        )

    def header(self, run_id="run-1", **environment):
        return Header(
            run_id, STARTED, ("pytest", "perf_tests"), "pytest-roofline 0.1.0", self.environment(**environment)
        )

    def outcome(self, measurement, outcome="passed", **changes):
        return Outcome(measurement.test_id, outcome, **changes)

    def footer(self, **changes):
        return Footer(**({"finished": STARTED, "exit_status": 0, "measured": 1} | changes))

    def session(self, *medians, run_id="run-1", **changes):
        return Session(run_id, STARTED, medians or (1e-3,), **changes)

    def measured(self, *medians, key=None, **changes):
        """A `measured` entry of a baseline with one session."""
        key = key or self.key()
        facts = {
            "name": key.name,
            "parameters": key.parameters,
            "cache": key.cache,
            "timing": key.timing,
            "work": self.copy(),
            "sessions": (self.session(*medians),),
        }
        return Entry(key.benchmark, key.metric, "measured", key.hardware, **(facts | changes))

    def published(self, kind="threshold", **changes):
        """A `threshold` or `reference` entry that leaves everything open but the benchmark."""
        facts = {
            "benchmark": "memcpy_d2d",
            "metric": "traffic_GBps",
            "value": 100.0,
            "unit": "GB/s",
            "convention": "read + write",
            "source": "the vendor's guide",
            "confidence": "high",
        }
        return Entry(kind=kind, **(facts | changes))

    def save(self, path: Path, *records, run_id=None, ended=True, **environment):
        """Write a run file as a run does; the header is made up, and `run_id` is the file's name unless given.

        Tests that no outcome is given for have passed, unless the run was killed before they `ended`.
        """
        from pytest_roofline.judging.runs import encode_line

        header = self.header(run_id or path.stem, **environment)
        if ended:
            told = {record.test_id for record in records if isinstance(record, Outcome)}
            silent = {r.test_id: r for r in records if isinstance(r, Measurement) and r.test_id not in told}
            records += tuple(self.outcome(measurement) for measurement in silent.values())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(encode_line, (header, *records))), encoding="utf-8")
        return path

    def run(self, path: Path, *records, run_id=None, ended=True, **environment):
        """A run as it is read back from its file."""
        from pytest_roofline.judging.runs import read_run

        return read_run(self.save(path, *records, run_id=run_id, ended=ended, **environment))


@pytest.fixture(scope="session")
def make():
    return Make()
