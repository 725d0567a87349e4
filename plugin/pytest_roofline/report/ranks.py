"""What a reader must know of measurements over ranks: who took part, who was late, and which numbers tell nothing."""

from collections import Counter
from collections.abc import Sequence

from ..core.keys import JOB_METRIC
from ..core.records import Measurement
from ..core.rows import Row
from ..core.samples import OVERSUBSCRIBED, Ranks
from ..core.units import count, format_percent, format_seconds, printable
from ..core.work import rate_suffix

MOST_LISTED = 3
COUNTED = "rates of collectives are bus bandwidth (busbw, as the nccl-tests count): what each link would have to carry"


def rank_lines(rows: Sequence[Row]) -> list[str]:
    """The ranks of a run in a line for each launch, stragglers by rank and host, and what was oversubscribed."""
    measured = [row.measurement for row in rows if row.measurement is not None]
    known = [(measurement, measurement.ranks) for measurement in measured if measurement.ranks is not None]
    if not known:
        return []
    lines = [] if not any(rate_suffix(m.key.metric) == "busbw_GBps" for m, _ in known) else [COUNTED]
    lines += [f"ranks: {text}" for text in dict.fromkeys(launch_text(ranks) for _, ranks in known)]
    lines += _cut([straggler_text(measurement, ranks) for measurement, ranks in known if ranks.straggler is not None])
    lines += [text for m, _ in known for text in job_text(m, [other for other, _ in known])]
    shared = [m for m, _ in known if OVERSUBSCRIBED in m.samples.labels]
    if shared:
        names = ", ".join(printable(m.label) for m in shared[:MOST_LISTED])
        more = f" and {len(shared) - MOST_LISTED} more" if len(shared) > MOST_LISTED else ""
        lines.append(f"oversubscribed: more ranks on a host than cores, so these tell of the scheduler and never gate: "
                     f"{names}{more}")  # fmt: skip
    return lines


def launch_text(ranks: Ranks) -> str:
    """`local, gloo, 2 threads a rank, on node7`: how the ranks of a measurement were started, and where."""
    hosts = list(Counter(ranks.hosts))
    where = f"on {printable(', '.join(hosts[:4]))}" + (f" and {len(hosts) - 4} more hosts" if len(hosts) > 4 else "")
    threads = f"{count(ranks.threads, 'thread')} a rank" if ranks.threads is not None else ""
    parts = [ranks.launcher, ranks.backend, threads, where if hosts else ""]
    return ", ".join(part for part in parts if part)


def straggler_text(measurement: Measurement, ranks: Ranks) -> str:
    """`straggler: rank 3 on node7 took 19.8 ms more of its own in all_reduce[1MiB-4ranks] (98 % of a call)`."""
    assert ranks.straggler is not None
    host = f" on {ranks.hosts[ranks.straggler]}" if ranks.hosts else ""
    lag_s = ranks.lag_s[ranks.straggler] if ranks.lag_s else 0.0
    share = format_percent(lag_s / measurement.median_s).replace("+", "")
    return (
        f"straggler: rank {ranks.straggler}{printable(host)} needs {format_seconds(lag_s)} more than the fastest for "
        f"its own part of {printable(measurement.label)} ({share} of a call)"
    )


def job_text(job: Measurement, others: Sequence[Measurement]) -> list[str]:
    """A whole program beside the steady time of the same work, where a test measured both."""
    if job.key.metric != JOB_METRIC:
        return []
    same = [one for one in others if one.test_id == job.test_id and one.work.agrees(job.work) and one is not job]
    return [
        f"{printable(job.label)}: the whole program takes {format_seconds(job.median_s)}, of which one steady call of "
        f"its work is {format_seconds(one.median_s)}; the rest is starting, importing, meeting, warming up and ending"
        for one in same
    ]


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - MOST_LISTED
    return lines if more <= 0 else [*lines[:MOST_LISTED], f"… and {more} more with a straggler"]
