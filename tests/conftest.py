"""Small records for tests: every argument has a default, so that a test names only what it is about."""

import contextlib
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import re
import runpy
import signal
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from types import CodeType

import pytest
import pytest_rerunfailures
from _pytest.assertion import rewrite
from _pytest.fixtures import FixtureManager
from _pytest.junitxml import xml_key
from hypothesis import settings

from pytest_roofline.core.entries import Entry, Session
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from pytest_roofline.core.keys import Key
from pytest_roofline.core.records import Footer, Header, Measurement, Outcome
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.storage import decode_json, to_plain, to_record
from pytest_roofline.core.work import Work
from pytest_roofline.engine import identity

from . import warm
from .features import needs_missing

if pytest.version_tuple < (9, 2):
    # These take a file of tests for unchanged that was written anew within a second and has the same length.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# Shared machines pause at will, so no example has a deadline. The examples are the same every time, so that what is red
# has been changed; `--hypothesis-profile=others` tries others.
settings.register_profile("others", deadline=None)
settings.register_profile("shared", settings.get_profile("others"), derandomize=True)
settings.load_profile("shared")


# Threads that spin while they wait take a core from the other tests; before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A shell that starts this in the background has Ctrl-C ignored, here and in all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """All workers of xdist have processes forked from the same one, which imports for seconds."""
    if config.getoption("numprocesses", None):
        warm.share()


def pytest_sessionstart(session):
    """A file for JUnit says which versions its tests ran with; `benchmarks/versions.py` makes a page of such files."""
    if not (report := session.config.stash.get(xml_key, None)):
        return
    needs = importlib.metadata.requires("pytest-roofline")
    names = [re.match(r"[\w-]+", need)[0] for need in needs if "extra ==" not in need] + ["triton"]
    versions = {"python": platform.python_version()}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    # With the part that names a build, which the metadata of PyPI's wheels leave out; an import takes seconds.
    torch = Path(importlib.util.find_spec("torch").origin).with_name("version.py")
    versions["torch"] = runpy.run_path(str(torch))["__version__"]
    for name, version in versions.items():
        report.add_global_property(name, version)


def pytest_collection_modifyitems(config, items):
    """Leave out the tests of a feature that was taken out of the package."""
    left_out = [item for item in items if needs_missing(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not needs_missing(item)]


class ReadOnce:
    """An installed distribution whose files are read when they are first asked for, and then no more."""

    def __init__(self, distribution):
        self._distribution = distribution

    def __getattr__(self, name):
        value = getattr(self._distribution, name)
        setattr(self, name, value)
        return value


def kept_distributions():
    """`importlib.metadata.distributions`, which looks for plugins in every run anew, remembered for each path."""
    found, look = {}, importlib.metadata.distributions

    def distributions(**asked):
        if asked:
            return look(**asked)
        path = tuple(sys.path)
        if path not in found:
            found[path] = [ReadOnce(one) for one in look()]
        return iter(found[path])

    return distributions


def kept_rewrites():
    """pytest's `_rewrite_test`, which compiles a test file anew for each folder, remembered for each content."""
    results, rewrite_test = {}, rewrite._rewrite_test

    def rewritten(path, config):
        content = path.read_bytes()
        if content not in results:
            results[content] = rewrite_test(path, config)
        version, code = results[content]
        return version, in_file(code, str(path))

    return rewritten


def in_file(code, path):
    """The same code with the name of another file."""
    constants = tuple(
        in_file(constant, path) if isinstance(constant, CodeType) else constant
        for constant in code.co_consts
    )
    return code.replace(co_filename=path, co_consts=constants)


@pytest.fixture(scope="session", autouse=True)
def _lasting():
    """What runs of pytest in this process, of which there are thousands, leave behind in it."""
    with pytest.MonkeyPatch.context() as patch:
        # Every run reads the metadata of all that is installed three times over, a fifth of what a small one takes.
        patch.setattr(importlib.metadata, "distributions", kept_distributions())
        # The same few files are compiled by every run, a tenth of what a small one takes.
        patch.setattr(rewrite, "_rewrite_test", kept_rewrites())
        # From pytest 9.2 on every name of every plugin is unwrapped for a warning, which takes as long.
        patch.setattr(FixtureManager, "_check_for_wrapped_fixture", lambda *_: None, raising=False)
        # Beside xdist each would start a server of its own for the counts of reruns, and never end it.
        patch.setattr(pytest_rerunfailures, "ServerStatusDB", pytest_rerunfailures.StatusDB)
        # Git is asked in each, and says of this machine what no test may depend on.
        patch.setattr(identity, "identified", lambda environment, *_: environment)
        patch.setattr(identity, "packages", dict)
        patch.setattr(identity, "libraries", dict)
        yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def quick_collections(_lasting):
    """Have collections of garbage look at what a module's tests make, and not at the million objects of torch.

    Every measurement collects garbage first, which takes 0.15 s with all of torch on the heap. Anew for each module,
    since what it imports and what runs of pytest in this process leave behind is as much again.
    """
    gc.collect()
    gc.freeze()


MIB = 2**20
STARTED = "2026-01-02T03:04:05Z"
DEVICE = "GPU-1"


class Make:
    """Factories of records on one made-up accelerator."""

    def hardware(self, **changes):
        facts = {
            "product": "h200-sxm",
            "memory": "141gb",
            "partition": "none",
            "devices": 1,
            "link": "none",
        }
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
        # It computes on the way: made-up seconds would be an absurd rate of a pure copy, which no baseline may hold.
        return Work(
            read_bytes=size_bytes,
            write_bytes=size_bytes,
            payload_bytes=size_bytes,
            flops=2 * size_bytes,
        )

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

    def environment(
        self, product="NVIDIA H200", driver="570.86", device_type="cuda", uuid="GPU-1", code=(), host="node",
    ):  # fmt: skip
        return Environment(
            device=DeviceFacts(device_type, product, driver=driver, uuid=uuid),
            host=HostFacts(host, "AMD EPYC", 8, 8, 2**36, 2**36, kernel="6.8"),
            software={"torch": "2.13.0"},
            code=code,
        )

    def spaced(self, count, spread, centre=0.0):
        """Log seconds at equal distances around a centre, whose standard deviation is exactly `spread`."""
        steps = [index - (count - 1) / 2 for index in range(count)]
        unit = statistics.stdev(steps) if count > 1 else 1.0
        return [centre + spread / unit * step for step in steps]

    def group(self, *logs, device=DEVICE, started=STARTED):
        """A session whose processes have these log-medians."""
        from pytest_roofline.core.verdicts import Group

        return Group(tuple(math.exp(value) for value in logs), device, started)

    def groups(self, sessions=1, processes=5, process=0.01, session=0.0, centre=0.0, device=DEVICE):
        """Sessions on different days, whose spreads come out as exactly these when they are estimated.

        Where nothing lies between sessions, the processes of all are one sample.
        """
        means = self.spaced(sessions, math.sqrt(session**2 + process**2 / processes), centre)
        if session == 0 and processes > 1:
            means = [centre] * sessions
            process *= math.sqrt((sessions * processes - 1) / (sessions * (processes - 1)))
        return tuple(
            self.group(
                *self.spaced(processes, process, mean),
                device=device,
                started=f"2026-01-{day:02d}T03:04:05Z",
            )
            for day, mean in enumerate(means, 1)
        )

    def reference(self, *groups, **changes):
        """What a measurement is compared with; fifteen processes of three sessions unless groups are given."""
        from pytest_roofline.core.verdicts import Reference

        return Reference(**({"groups": groups or self.groups(3), "source": "h200.json"} | changes))

    def result(
        self, *seconds, known=True, reference=None, policy=None, limits=(), why_none="", **changes
    ):
        """A row with its verdict: processes that took `seconds`, against fifteen of a millisecond each."""
        from pytest_roofline.core.reasons import text_reasons
        from pytest_roofline.core.verdicts import Group
        from pytest_roofline.stats.outlook import Policy
        from pytest_roofline.stats.verdicts import judge

        seconds = seconds or (1e-3,)
        shown = {
            name: changes.pop(name)
            for name in ("environment", "before", "published", "left_out", "idle")
            if name in changes
        }
        if reference is None and known:
            shown = {"before": {"driver": "550.54"}} | shown
        measurement = self.measurement(statistics.median_high(seconds), **changes)
        steady = self.groups(3, process=0.001, centre=math.log(1e-3))
        verdict = judge(
            [Group(seconds, DEVICE, STARTED)],
            (reference or self.reference(*steady)) if known else None,
            policy or Policy(),
            invalid=text_reasons(measurement.invalid),
            subject=self.subject(measurement, **shown),
            limits=limits,
            why_none=why_none or "no baseline recorded",
        )
        return self.judged(measurement, verdict)

    def row(self, measurement, word="FAILED", **facts):
        """The row of a measurement whose test failed for itself, so that it has no verdict."""
        from pytest_roofline.baselines.rows import timed_row
        from pytest_roofline.stats.key_results import KeyResults

        return timed_row(KeyResults([measurement]), word=word, **facts)

    def judged(self, measurement, verdict):
        """The row of a measurement with a verdict."""
        from pytest_roofline.baselines.rows import timed_row
        from pytest_roofline.stats.key_results import KeyResults

        return timed_row(KeyResults([measurement]), verdict)

    def subject(
        self, measurement, environment=None, before=None, published=(), left_out=(), idle=()
    ):
        """What is known of a measurement beside its time; `before` is the environment behind its baseline."""
        from pytest_roofline.core.reasons import text_reasons
        from pytest_roofline.core.verdicts import Subject
        from pytest_roofline.stats.verdicts import changes_between

        now = {"driver": "570.86"} if environment is None else environment
        return Subject(
            test_id=measurement.test_id,
            label=measurement.label,
            name=measurement.key.name,
            clock_hz=measurement.samples.clock_hz,
            changed=changes_between([now], [before] if before else []),
            left_out=text_reasons(*left_out),
            published=tuple(published),
            idle=tuple(idle),
        )

    def difference(self, estimate=0.0, **changes):
        """A difference in log seconds whose standard error is 1 %."""
        from pytest_roofline.core.verdicts import Difference, Spread

        facts = {
            "estimate": estimate,
            "error": 0.01,
            "freedom": 14.0,
            "process": Spread(0.01, "estimated", 14.0),
            "session": Spread(0.005, "estimated, 3 sessions"),
            "new_s": 1e-3,
            "reference_s": 1e-3,
        }
        return Difference(**(facts | changes))

    def verdict(self, measurement, kind="PASSED", **changes):
        """A verdict on a measurement, whatever its time; `changed` is what differs from its baseline's environment.

        `reason` is a fact in words of its source.
        """
        from pytest_roofline.core.reasons import text_reasons
        from pytest_roofline.core.verdicts import Kind, Verdict

        subject = replace(self.subject(measurement), changed=changes.pop("changed", ()))
        reasons = text_reasons(changes.pop("reason", ""))
        facts = {"tolerance": 0.05, "subject": subject, "reasons": reasons}
        return Verdict(Kind(kind), **(facts | changes))

    def header(self, run_id="run-1", started=STARTED, **environment):
        return Header(
            run_id,
            started,
            ("pytest", "perf_tests"),
            "pytest-roofline 0.1.0",
            self.environment(**environment),
        )

    def outcome(self, measurement, outcome="passed", **changes):
        return Outcome(measurement.test_id, outcome, **changes)

    def footer(self, **changes):
        return Footer(**({"finished": STARTED, "exit_status": 0, "measured": 1} | changes))

    def session(self, *medians, run_id="run-1", started=STARTED, **changes):
        return Session(run_id, started, medians or (1e-3,), **changes)

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
        from pytest_roofline.baselines.runs import encode_line

        header = self.header(run_id or path.stem, **environment)
        if ended:
            told = {record.test_id for record in records if isinstance(record, Outcome)}
            silent = {
                r.test_id: r
                for r in records
                if isinstance(r, Measurement) and r.test_id not in told
            }
            records += tuple(self.outcome(measurement) for measurement in silent.values())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(encode_line, (header, *records))), encoding="utf-8")
        return path

    def refusal(self, record):
        """Return why a file that holds a record is refused."""
        with pytest.raises(BadFile) as error:
            to_record(decode_json(json.dumps(to_plain(record)), "FILE"), type(record), "FILE")
        return str(error.value)

    def run(self, path: Path, *records, run_id=None, ended=True, **environment):
        """A run as it is read back from its file."""
        from pytest_roofline.baselines.runs import read_run

        return read_run(self.save(path, *records, run_id=run_id, ended=ended, **environment))


@pytest.fixture(scope="session")
def torch_compiler():
    """Import what some functions load at their first call: in seconds, and an inner run would forget it again."""
    # With the trackers of memory, which import it.
    importlib.import_module("torch.distributed._tools")


@pytest.fixture(scope="session")
def make():
    return Make()
