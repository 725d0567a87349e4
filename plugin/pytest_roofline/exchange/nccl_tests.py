"""Logs of nccl-tests and rccl-tests: what `all_reduce_perf` and the others print."""

import re
from dataclasses import replace

from ..core.errors import BadFile
from ..core.keys import Scalar
from .collectives import NAMES, Operation, Row, Setting, Times, operation_of, reading
from .nccl_lines import Log, logs_of
from .records import Given, Imported, Reading, pooled
from .refusing import refuse

CONVENTION = (
    "size is S, for all_gather, reduce_scatter and the like the whole array of all ranks; time is the mean of the "
    "calls, one after the other, by the host's clock, and over ranks unless -a said otherwise; GB is 1e9 bytes; data "
    "are checked in calls of their own"
)


def sniff(text: str) -> bool:
    """Whether a text looks like such a log."""
    marks = r"^[^\n]*# (?:nThread \d|Collective test starting:|[nr]ccl-tests version|Avg bus bandwidth)"
    return re.search(marks, text, re.MULTILINE) is not None


def read(text: str, source: str, given: Given) -> tuple[Imported, ...]:
    """The runs in a log, one behind the other.

    Raises:
        BadFile: a line that is not understood, contradicts itself, or is missing.
    """
    return tuple(_imported(log, source, given) for log in logs_of(text, source))


def _imported(log: Log, source: str, given: Given) -> Imported:
    assert log.average is not None
    if not log.config:
        refuse(source, *log.average[:2], "no line '# nThread …' above; expected a whole log")
    setting = _setting(log, source, given)
    operation = _operation(log, setting, source, given)
    readings: list[Reading] = []
    left_out: list[str] = []
    for number, line, row, times in log.rows:
        if why := row.trouble(operation, setting.ranks):
            refuse(source, number, line, why)
        for one in times:
            if why := one.trouble(row.work(operation, setting.ranks)):
                refuse(source, number, line, why)
            if not row.size_bytes or not one.time_us.value:
                left_out.append(
                    f"line {number}, {one.place}: {'no time at all' if row.size_bytes else 'moves nothing'}"
                )
                continue
            readings.append(_reading(log, operation, row, one, setting, number))
    _check_average(log, source)
    products = list(dict.fromkeys(name for *_, name in log.ranks if name))
    if len(products) > 1:
        raise BadFile(f"{source}: ranks on {' and '.join(products)}; expected one product")
    tool = "rccl-tests" if "rccl-tests" in log.software else "nccl-tests"
    return Imported(
        source=source,
        tool=tool,
        convention=CONVENTION,
        readings=pooled(readings),
        product=products[0] if products else None,
        host=log.ranks[0][2] if log.ranks else None,
        software=log.software,
        left_out=tuple(left_out),
        notes=_notes(log),
    )


def _reading(log: Log, operation: Operation, row: Row, one: Times, setting: Setting, number: int) -> Reading:
    """Half a row; of old versions, which print the largest error, the count below all rows says whether it is right."""
    counted = "error" not in log.columns
    wrong = one.wrong if counted else None
    checked = None if one.wrong is None else not (wrong or log.bounds)
    tool = "rccl_tests" if "rccl-tests" in log.software else "nccl_tests"
    found = reading(tool, operation, row, replace(one, wrong=wrong), setting, number, checked)
    any_counted = counted and any(half.wrong for *_, halves in log.rows for half in halves)
    if log.bounds and not any_counted:
        found = replace(found, invalid=f"{log.bounds} values were out of bounds, and the log does not tell where")
    return found


def _setting(log: Log, source: str, given: Given) -> Setting:
    threads, gpus, _, _, _, warmup, iterations, together, _, graph, unalign = log.config
    devices = len(log.ranks) or given.devices
    if not devices:
        raise BadFile(
            f"{source}, line {log.config_line}: no lines '# Rank …' below; tell with --devices how many took part"
        )
    if given.devices not in (None, devices):
        raise BadFile(f"{source}: {devices} ranks, but --devices={given.devices}; expected the same")
    if devices % (threads * gpus or 1):
        raise BadFile(
            f"{source}, line {log.config_line}: {threads} threads of {gpus} GPUs; that cannot be {devices} ranks"
        )
    groups: dict[int, int] = {}
    for _, group, _, _ in log.ranks:
        groups[group] = groups.get(group, 0) + 1
    ranks = groups[log.ranks[0][1]] if log.ranks else devices
    hosts = len({host for _, _, host, _ in log.ranks})
    blocking = _blocking(log.blocking)
    several: dict[str, Scalar] = {"nodes": hosts if hosts > 1 else 0, "groups": len(groups) if len(groups) > 1 else 0}
    several |= {"agg_iters": together if together > 1 else 0, "graph": graph, "unalign": unalign, "blocking": blocking}
    extra: dict[str, Scalar] = {name: value for name, value in several.items() if value}
    calls = max(1, iterations) * max(1, together) * max(1, graph)
    return Setting(ranks, devices, calls, warmup, "isolated" if blocking else "pipelined", extra)


def _blocking(words: str) -> int:
    if not words:
        return 0
    if "outer" in words:
        return 3
    return 2 if "no barrier" in words else 1


def _operation(log: Log, setting: Setting, source: str, given: Given) -> Operation:
    """What the log names, or the user; else the one operation that its rows can be, if there is one."""
    told = operation_of(log.program) if log.program else None
    asked = operation_of(given.operation) if given.operation else None
    if told and asked and told != asked:
        raise BadFile(f"{source} says {told.name}, but --operation={asked.name}; expected the same")
    named = told or asked
    if named is not None:
        return named
    if log.program:
        raise BadFile(
            f"{source}: {log.program!r} is no test that this importer knows; expected one of {', '.join(NAMES)}"
        )
    fits = {name: _fits(log, name, setting) for name in NAMES if name not in ("hypercube", "all_to_all_v")}
    if log.rows and not max(fits.values()) and any(row.size_bytes for _, _, row, _ in log.rows):
        number, line = next((number, line) for number, line, row, _ in log.rows if row.size_bytes)
        refuse(source, number, line, f"among {setting.ranks} ranks, neither this row nor any below fits a collective")
    # A row that is wrong fits none; it is to be refused by its own line.
    possible = [name for name, rows in fits.items() if rows == max(fits.values())]
    found = operation_of(possible[0])
    if len(possible) > 1 or found is None:
        why = f"the log does not say which collective; tell with --operation: {', '.join(possible)}"
        refuse(source, log.columns_line, f"# {' '.join(log.columns)}", why)
    return found


def _fits(log: Log, name: str, setting: Setting) -> int:
    """How many rows can be of this operation."""
    operation = operation_of(name)
    assert operation is not None
    return sum(
        not row.trouble(operation, setting.ranks)
        and not any(one.trouble(row.work(operation, setting.ranks)) for one in times)
        for _, _, row, times in log.rows
        if row.size_bytes
    )


def _check_average(log: Log, source: str) -> None:
    """The mean of all bus bandwidths stands below them: what was cut out of a log shows there."""
    assert log.average is not None
    number, line, average = log.average
    rates = [one.busbw for *_, times in log.rows for one in times]
    low, high = (sum(getattr(rate, side) for rate in rates) / len(rates) for side in ("low", "high"))
    if not average.within(max(0.0, low), high):
        middle = sum(rate.value for rate in rates) / len(rates)
        refuse(
            source,
            number,
            line,
            f"the {len(rates)} bus bandwidths above have a mean of {middle:.6g}; rows are missing or changed",
        )


def _notes(log: Log) -> tuple[str, ...]:
    notes = [f"{count} lines of NCCL {word}" for word, count in log.spoken.items() if word == "WARN"]
    if log.own_limit == "FAILED":
        notes.append("the tool's own limit, NCCL_TESTS_MIN_BW, was not met")
    return tuple(notes)
