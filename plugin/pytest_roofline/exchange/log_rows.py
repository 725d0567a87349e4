"""Logs of other tools as the rows of tables of many machines.

The rows are those that `roofline import` would give. Two thousand logs hold the same few tests, so each test is built
once, and only logs with something invalid go through all records of a run.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from ..baselines.picking import IMPORT
from ..baselines.runs import Line
from ..baselines.test_texts import MeasuredRow, RunFile, hosts_text, text_of_test
from ..core.facts import Environment, HardwareKey
from ..core.records import Measurement
from ..core.storage import read_bytes, to_plain
from ..core.units import printable
from ..core.writing import json_text
from ..figures.plan import ReadPlan
from ..hardware import above_peak, key_of
from ..version import __version__
from .building import (
    build,
    identity_of_file,
    imported_environment,
    mark_impossible,
    run_id_of,
    started_of,
    user_facts_of,
    with_ceiling,
)
from .formats import read
from .nodes import by_node, refuse_several, with_node
from .records import ImportedLog, Reading, UserFacts

TOOL = f"pytest-roofline {__version__}"
# By all that makes the test of a reading: its measurement, and the text of the test.
_KNOWN_TESTS: dict[tuple[object, ...], tuple[Measurement, str]] = {}


def read_log_rows(path: str, host: str, plan: ReadPlan) -> list[RunFile | list[Line]]:
    """Return the runs in a log, one for each of its nodes.

    If something of a run is invalid, it is the lines of its run file.

    Args:
        host: the node, or a pattern of its path, where the log names none.
        plan: how its figures are read; without a reader its form is recognised.

    Raises:
        BadFile: it has no known format, or nothing names its node.
    """
    user_facts = user_facts_of(plan, UserFacts(host=host))
    content = read_bytes(Path(path), "log", "the output of a tool")
    source = printable(path)
    logs = [with_node(log, path, host) for log in read(content, source, user_facts, plan.reader)]
    run_id = run_id_of([identity_of_file(content, source, plan.paths)], plan.paths)
    return [_run(path, run_id, logs_of_node, user_facts) for logs_of_node in by_node(logs).values()]


def _run(
    path: str, run_id: str, logs: Sequence[ImportedLog], user_facts: UserFacts
) -> RunFile | list[Line]:
    """Return the run of one node's logs: its rows if all readings are sound, else the lines of its run file."""
    refuse_several(logs)
    environment = imported_environment(logs, user_facts)
    rows = _sound_rows(logs, environment, user_facts)
    if not rows:
        marked_logs = mark_impossible(logs, user_facts)
        return build(marked_logs, user_facts, run_id, TOOL, (*IMPORT, path))
    return RunFile(
        path,
        run_id=run_id,
        started=started_of(logs, user_facts),
        tool=TOOL,
        environment=json_text(to_plain(environment), indent=None),
        imported=True,
        rows=rows,
    )


def _sound_rows(
    logs: Sequence[ImportedLog], environment: Environment, user_facts: UserFacts
) -> list[MeasuredRow]:
    """Return the rows of logs.

    There are none at all if anything in them is invalid or failed.
    """
    hardware, node = key_of(environment), environment.host.name
    rows = []
    for log in logs:
        hosts = hosts_text(log.machine.hosts) if log.machine.hosts else ""
        for reading in log.readings:
            measurement, test = _known_test(reading, log, hardware, environment, user_facts)
            if log.failed or reading.invalid or _above_peak(measurement, reading):
                return []
            # The device of the known test may be of another node, but its number is the same.
            _, _, gpu = measurement.device.rpartition(":")
            device = f"{node}:{gpu}" if gpu else ""
            rows.append((test, "", hosts, device, median(reading.seconds)))
    return rows


def _known_test(
    reading: Reading,
    log: ImportedLog,
    hardware: HardwareKey,
    environment: Environment,
    user_facts: UserFacts,
) -> tuple[Measurement, str]:
    """Return a reading's test as if it took one second, and its text.

    The first is a measurement, the second describes the test. Both are built once for each test, since many
    logs hold the same ones.
    """
    key = reading.key
    identity = (
        *(key.benchmark, key.metric, key.name, key.timing, key.cache, *key.parameters.items()),
        *(reading.work, reading.devices, reading.mode, hardware, bool(log.machine.hosts)),
        *log.unread.items(),
    )
    if identity not in _KNOWN_TESTS:
        measurement = with_ceiling(replace(reading, seconds=(1.0,)), log, environment, user_facts)
        test = text_of_test(
            measurement.key,
            measurement.work,
            measurement.samples.achieved,
            bool(measurement.device),
        )
        _KNOWN_TESTS[identity] = measurement, test
    return _KNOWN_TESTS[identity]


def _above_peak(measurement: Measurement, reading: Reading) -> bool:
    """Return True if a reading is above the peak.

    Its rate is compared with that of its device or link. `measurement` is one of its test, which took one second.
    """
    share = (measurement.share_of_ceiling or 0.0) / median(reading.seconds)
    labels = measurement.samples.labels
    return bool(above_peak(measurement.ceiling, measurement.work, share, labels))
