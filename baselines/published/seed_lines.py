"""What a figure of one of the documents says in our terms.

Sums of several steps are already divided in the data; here milliseconds become seconds, one-way rates of a copy within
a memory become traffic, and sizes in 10^6 bytes become bytes.
"""

from dataclasses import dataclass, replace

from figures import Told
from meaning import Statistic
from sizes import ours, sizes_between

from pytest_roofline.core.entries import OUT_OF_MEMORY
from pytest_roofline.core.keys import Scalar

Value = float | tuple[float, float] | str
NOT_COMPARABLE = "the time of a whole program with starting it, not comparable with the steady time of a collective"
_FIRST = "cs336-report-1"
_BATCH_NOT_STATED = "batch not stated; the assignment's is 4"
_PRECISIONS: dict[str, tuple[str, ...]] = {
    "fp32": ("fp32",),
    "bf16-mixed": ("bf16_autocast",),
    # The report writes of both, and does not say which its table is of.
    "mixed": ("bf16_autocast", "fp16_autocast"),
}
# The document's sizes are powers of two; of what it calls 100 KB the nearest is meant.
_PEER_RANGES = {100000: (2**17, 2**17), 8388608: (2**23, 2**24), 33554432: (2**25, 2**30)}


@dataclass(frozen=True, slots=True)
class Line:
    """One figure in our terms: what `conventions.Meaning` is for published ones, with the value itself."""

    benchmark: str
    parameters: dict[str, Scalar]
    metric: str
    value: Value
    unit: str
    convention: str
    statistic: Statistic | None = None
    name: str = ""
    notes: tuple[str, ...] = ()
    devices: int | None = 1
    link: str | None = None


def seconds(ms: float) -> float:
    """Milliseconds as seconds, without the dust of binary fractions."""
    return float(f"{ms / 1e3:.12g}")


def memory_copy(one: Told) -> list[Line]:
    low, high = one.value
    sizes = sizes_between(one.parameters["size_bytes_from"], one.parameters["size_bytes_to"])
    convention = f"{low} to {high} GB/s of payload, one way, 1e9: times 2 for traffic"
    note = "read off a plot, for all sizes between; zeros were copied, again and again between the same two buffers"
    return [
        Line("memcpy_d2d", {"size_bytes": size}, "traffic_GBps", (2.0 * low, 2.0 * high), "GB/s", convention,
             statistic="mean", notes=(note,))
        for size in sizes
    ]  # fmt: skip


def peer_copy(one: Told) -> list[Line]:
    """A range read off a plot; what the text says of one size it says of those up to the next that it names."""
    size = one.parameters["size_bytes"]
    if one.benchmark == "peer_copy_mpi":
        return [
            _between(
                one,
                "peer_copy_mpi",
                {"memory": "device", "pattern": "one_way", "size_bytes": ours(size)},
            )
        ]
    sizes = sizes_between(*_PEER_RANGES[size]) if size in _PEER_RANGES else [size]
    near = (
        ()
        if size in sizes
        else (f"printed of {size // 1000} KB, to which this size is the document's nearest",)
    )
    return [_between(one, "peer_copy_one_way", {"size_bytes": each}, *near) for each in sizes]


def _between(one: Told, benchmark: str, parameters: dict[str, Scalar], *more: str) -> Line:
    low, high = map(float, one.value)
    notes = (one.note, "read off a plot and its text; zeros were copied", *more)
    return Line(
        benchmark, parameters, "payload_GBps", (low, high), "GB/s", "payload, one way, 1e9", statistic="mean",
        notes=notes, devices=2, link="xgmi",
    )  # fmt: skip


def kernel(one: Told) -> list[Line]:
    parameters = one.parameters
    what = parameters.get("kernel") or parameters.get("row")
    calls = parameters.get("instances", parameters.get("calls"))
    shape = {name: parameters[name] for name in ("size", "passes") if name in parameters}
    return [
        Line("transformer", shape, "kernel_s", seconds(one.value), "s", "ms, summed over calls, by a profiler",
             notes=(f"{what}, {calls} calls in {one.value:g} ms", *([one.note] if one.note else [])))
    ]  # fmt: skip


def profile(one: Told) -> list[Line]:
    parameters = one.parameters
    note = (parameters["what"], one.note)
    if one.unit == "%":
        return [
            Line(
                "transformer", {}, "kernel_share", one.value / 100, "share", "per cent", notes=note
            )
        ]
    value = seconds(one.value / (1e3 if one.unit == "us" else 1))
    shape = {"size": parameters["size"]} if "size" in parameters else {}
    return [
        Line(
            "transformer",
            shape,
            "kernel_s",
            value,
            "s",
            f"{one.unit}, one layer's, by a profiler",
            notes=note,
        )
    ]


def step(one: Told) -> list[Line]:
    """A pass of a model, in milliseconds; attention by the formula, so it speaks of every attention of ours."""
    told = one.parameters
    shape: dict[str, Scalar] = {"size": told["size"], "passes": told["passes"]}
    if "context_length" in told:
        shape["context"] = told["context_length"]
    notes = [one.note.replace(" mean an 80 GB part", " suggest one of 80 GB")]
    if one.hardware != "Ampere 8 GB (not named)":
        shape["batch"] = told.get("batch", 4)
        notes += [] if "batch" in told else [_BATCH_NOT_STATED]
    shape["execution"] = "compile" if told.get("compiled") else "eager"
    if "warmup_steps" in told:
        notes.append(f"after {told['warmup_steps']} warm-up steps")
    if "timer" in told or one.metric == "profiler_ms":
        notes.append("by Nsight Systems")
    if told.get("precision") == "mixed":
        notes.append("which type the mixed precision is of is not stated")
    value: Value = OUT_OF_MEMORY if one.value is None else seconds(one.value)
    return [
        Line("transformer", {**shape, "precision": precision}, "time_s", value, "s", _counted(one),
             statistic="mean", notes=tuple(notes))
        for precision in _PRECISIONS[told.get("precision", "fp32")]
    ]  # fmt: skip


def _counted(one: Told) -> str:
    if one.value is None:
        return "failed" if "only that it failed" in one.note else "out of memory"
    return (
        "a tenth of the sum of ten steps, ms / 1000"
        if "sum of 10" in one.note
        else "mean of steps, ms / 1000"
    )


def step_of_two_tables(one: Told) -> list[Line]:
    """The uncompiled half of the table repeats that of the warm-up steps; both are in, each under its own table."""
    kind = "compiled" if one.parameters["compiled"] else "not compiled"
    found = step(one)
    return [_noting(line, f"table of torch.compile, {kind}") for line in found]


def _noting(line: Line, *notes: str) -> Line:
    return replace(line, notes=(*line.notes, *notes))


def first_step(one: Told) -> list[Line]:
    shape: dict[str, Scalar] = {
        "size": one.parameters["size"],
        "passes": one.parameters["passes"],
        "batch": 4,
    }
    note = (f"step 0 without warm-up; {one.note}", _BATCH_NOT_STATED)
    return [
        Line(
            "transformer_warm_up",
            shape,
            "time_s",
            seconds(one.value),
            "s",
            "one step, ms / 1000",
            notes=note,
        )
    ]


def series(one: Told) -> list[Line]:
    shape: dict[str, Scalar] = {
        "size": one.parameters["size"],
        "passes": one.parameters["passes"],
        "batch": 4,
    }
    each = ", ".join(f"{value:g}" for value in one.value)
    warm = "after warm-up" if one.parameters["warmup"] == "yes" else "without warm-up"
    value = (seconds(min(one.value)), seconds(max(one.value)))
    notes = (f"ten steps {warm}, in ms: {each}", _BATCH_NOT_STATED)
    return [
        Line(
            "transformer_warm_up",
            shape,
            "time_s",
            value,
            "s",
            "least and most of ten steps",
            notes=notes,
        )
    ]


def peak_memory(one: Told) -> list[Line]:
    told = one.parameters
    words = str(told.get("what", ""))
    step = "train_step" in (told.get("passes"), words.split()[0] if words else "")
    shape: dict[str, Scalar] = {
        "size": told["size"],
        "context": told["context_length"],
        "passes": "step" if step else "forward",
        "batch": told.get("batch", 4),
    }
    mixed = "mixed" in (told.get("precision"), words.split()[-1] if words else "")
    notes = [
        one.note,
        "the device's memory as a whole, ours is what a call holds above what was there before",
    ]
    notes += ["mixed precision, its type not stated"] if mixed else []
    notes += (
        ["which size is not stated; inferred from how much it is"] if one.document == _FIRST else []
    )
    if not mixed:
        shape["precision"] = "fp32"
    value = one.value * 1e9
    return [
        Line(
            "transformer",
            shape,
            "peak_bytes",
            value,
            "B",
            "GB as printed, taken for 1e9",
            notes=tuple(notes),
        )
    ]


def attention(one: Told) -> list[Line]:
    told, metric = one.parameters, one.metric
    shape: dict[str, Scalar] = {
        "implementation": "compiled" if told.get("compiled") else "eager",
        "d_model": told["d_model"],
        "sequence": told["sequence_length"],
        "passes": "backward" if metric.startswith("backward") else "forward",
    }
    notes = (one.note, *([] if "batch" in told else ["batch not stated; the assignment's is 8"]))
    if metric.endswith("_MB"):
        before = "before_backward" in metric
        what = "memory before the backward pass" if before else "the most memory during the pass"
        name = "before_backward_bytes" if before else "peak_bytes"
        return [Line("attention", shape, name, round(one.value * 1e6, 3), "B", f"MB as printed, taken for 1e6: {what}",
                     notes=notes)]  # fmt: skip
    value: Value = OUT_OF_MEMORY if one.value is None else seconds(one.value)
    convention = "out of memory" if one.value is None else "mean of passes, ms / 1000"
    if "total of" in one.note:
        convention = "a hundredth of the sum of 100 passes, ms / 1000"
    return [
        Line("attention", shape, "time_s", value, "s", convention, statistic="mean", notes=notes)
    ]


def leaderboard(one: Told) -> list[Line] | str:
    if one.value is None:
        return (
            "the kernel did not start for want of shared memory; perf_tests/test_flash_resources.py asserts such a "
            "refusal"
        )
    notes = (
        f"a kernel of their own, tiles of {one.parameters['tile_size']}",
        "type and calling as the leaderboard's",
    )
    return [Line("flash_attention_leaderboard", {"name": "triton"}, "time_s", seconds(one.value), "s", "ms / 1000",
                 statistic="mean", name="like do_bench", notes=notes)]  # fmt: skip


def job(one: Told) -> list[Line]:
    told = one.parameters
    shape: dict[str, Scalar] = {
        "size_bytes": round(told["size_MB"] * 1e6),
        "world_size": told["world_size"],
    }
    notes = (
        NOT_COMPARABLE,
        f"backend {told['backend']}; how many iterations it made is not stated",
    )
    convention = "seconds, one run; MB are 1e6 bytes"
    return [
        Line(
            "all_reduce_job",
            shape,
            "job_wall_s",
            one.value,
            "s",
            convention,
            name="job",
            notes=notes,
            devices=None,
        )
    ]
