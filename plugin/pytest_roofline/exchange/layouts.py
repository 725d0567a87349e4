"""Tools whose JSON or CSV is read by a line of data, which says where their figures stand."""

import re
from functools import partial

from ..figures import csv_columns, json_paths
from .layout import FigurePlace, Layout, RatePlace
from .records import Tool, json_with

_COLD, _BATCH = "summaries.nv/cold", "summaries.nv/batch"
_TIME, _COUNT = "time/gpu/mean.data.value.value", "sample_size.data.value.value"
# A line of names with nothing but numbers below it.
_PLOT = re.compile(
    r"\A\s*[^\W\d]\w*(?:,[^,\n\"]+)+\r?\n(?:-?[\d.]+(?:e[+-]?\d+)?,[-\d.e+,naN]+\r?\n)+[-\d.e+,naN]*\s*\Z"
)

# What `--json` writes: `nvbench/json_printer.cu`.
NVBENCH = Layout(
    name="nvbench",
    title="JSON of NVBench",
    tool=Tool(
        "NVBench",
        "means of the samples; cold: alone behind a flushed cache, by CUDA events; batch: calls one after the other, "
        "by CUDA events; bytes are the global memory that the benchmark counted, read and written",
    ),
    is_of=json_with('"nv/cold/'),
    document_of=json_paths.document_of,
    rows="benchmarks.*.states.*",
    benchmark=("benchmarks",),
    parameters={"axes": "axis_values", "gpu": "device"},
    figures=(
        FigurePlace(f"{_COLD}/{_TIME}", {"way": "cold"}, f"{_COLD}/{_COUNT}", "device", "flush"),
        FigurePlace(f"{_BATCH}/{_TIME}", {"way": "batch"}, f"{_BATCH}/{_COUNT}", "pipelined"),
    ),
    unit="s",
    rate=RatePlace(
        f"{_COLD}/bw/global/bytes_per_second.data.value.value",
        times=(("", f"{_COLD}/{_TIME}"),),
        counts="read_bytes",
    ),
    skipped="skip_reason",
    product=("device", "devices.{}.name"),
    software={"NVBench": "meta.version.nvbench.string"},
    mode="events",
)

# What `--benchmark_format=json` prints: `src/json_reporter.cc`.
GOOGLE_BENCHMARK = Layout(
    name="google-benchmark",
    title="JSON of Google Benchmark",
    tool=Tool(
        "Google Benchmark",
        "seconds of an iteration by the wall clock, the mean of each run; repetitions are samples; bytes are those "
        "that the benchmark counted as processed",
    ),
    is_of=json_with('"time_unit"', '"context"'),
    document_of=json_paths.document_of,
    rows="benchmarks.*",
    benchmark=("run_name", "name"),
    figures=(FigurePlace("real_time", calls="iterations"),),
    unit_path="time_unit",
    rate=RatePlace(
        "bytes_per_second",
        # It is of the time of the CPU, unless the name of the run says otherwise.
        times=(
            (r"/(?:real|manual)_time(?:/threads:\d+)?$", "real_time"),
            ("", "cpu_time"),
            ("", "real_time"),
        ),
        counts="payload_bytes",
    ),
    summary="aggregate_name",
    failed="error_message",
    skipped="skip_message",
    device_type="cpu",
    host="context.host_name",
    cores="context.num_cpus",
    software={"Google Benchmark": "context.library_version", "build": "context.library_build_type"},
    started="context.date",
)

# What `triton.testing.perf_report` saves: a row for each point, a column for each line of its plot.
TRITON = Layout(
    name="triton",
    title="CSV of triton.testing.perf_report",
    tool=Tool(
        "triton.testing",
        "rates and times as the benchmark function gave them, most often a median of do_bench; GB is 1e9 bytes; "
        "seconds of a rate are those of 1 GB or 1 TFLOP, since the file has rates only",
    ),
    is_of=lambda text: _PLOT.match(text) is not None,
    # It adds the difference of two lines.
    document_of=partial(csv_columns.document_of, left_out=("Diff",)),
    rows="rows.*",
    nameless="perf_report",
    parameters={"parameters": "parameters", "line": "line"},
    figures=(FigurePlace("value", timing="device"),),
    unit_path="unit",
    statistic="median_or_mean",
    skipped="skipped",
    mode="events",
)

LAYOUTS = (NVBENCH, GOOGLE_BENCHMARK, TRITON)
