"""Verdicts in the text of OpenMetrics, for node_exporter's textfile collector.

The collector reads the older format of Prometheus, so only gauges are written, which both formats share.
"""

from collections.abc import Sequence

from ..core.units import moment
from ..hardware import identity_of
from .exportable import Exportable

# By name, the help of each metric.
HELP = {
    "roofline_verdict": "1 for the verdict on a test, which is a label.",
    "roofline_time_seconds": "Time of one call.",
    "roofline_time_ratio": "Time of one call, as a multiple of its baseline.",
    "roofline_measured_timestamp_seconds": "When the run of a test began.",
}


def write(entries: Sequence[Exportable]) -> str:
    """Return the metrics of all entries, each with its test, device and node as labels."""
    samples: dict[str, list[str]] = {name: [] for name in HELP}
    for entry in entries:
        environment = entry.header.environment
        node = environment.host.name
        labels = {"test": entry.row.label, "device": identity_of(environment) or node, "node": node}
        for name, value in _values(entry).items():
            samples[name].append(f"{name}{_labels(labels)} {value!r}")
        verdict = labels | {"verdict": entry.row.verdict}
        samples["roofline_verdict"].append(f"roofline_verdict{_labels(verdict)} 1")
    lines = [
        line
        for name, text in HELP.items()
        if samples[name]
        for line in (f"# HELP {name} {text}", f"# TYPE {name} gauge", *samples[name])
    ]
    return "\n".join([*lines, "# EOF", ""])


def _values(entry: Exportable) -> dict[str, float]:
    """Return the known numbers of an entry by metric."""
    started, baseline_s = moment(entry.header.started), entry.row.baseline_time_s
    values = {"roofline_time_seconds": entry.seconds}
    if baseline_s:
        values["roofline_time_ratio"] = entry.seconds / baseline_s
    if started is not None:
        values["roofline_measured_timestamp_seconds"] = started.timestamp()
    return values


def _labels(labels: dict[str, str]) -> str:
    """Return labels in braces, with their values escaped."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    pairs = (f'{name}="{value.translate(escapes)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"
