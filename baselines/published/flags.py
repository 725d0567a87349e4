"""Published figures that cannot be what they are said to be, found by program.

A figure above the datasheet's peak was counted or timed wrongly, or came out of a cache. A time that is shorter than
its FLOPs allow was not waited for. Peaks are those of the plugin's products, and of several possible variants that of
the fastest, so that nothing is doubted that could be true.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from figures import Figure, Told
from peaks import most_share, published_ceiling
from seed_lines import Line

from pytest_roofline.core.entries import Entry
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Scalar
from pytest_roofline.core.work import RATE_UNITS, rate_suffix
from pytest_roofline.hardware import UPPER_BOUND, catalogue, format_ceiling
from roofline_kernels.decoder.config import SIZES
from roofline_kernels.work import attention_flops, transformer_flops

# A profiler sees no less than this of what a clock on the host sees of the same synchronised pass.
PROFILER_SHARE = 0.75
# No product of that generation has more: the A100 of 80 GB.
AMPERE_GBPS_PRODUCT = HardwareKey("a100-sxm4", "80gb")
# What a source was found to say by mistake, by where it says it.
_MISTAKEN = {
    (
        "Azure/azurehpc-health-checks:conf/nc80adis_h100_v5.conf",
        "p2p_uni_read_ce_payload_GBps_min",
    ): (
        "the twelve links that join two H100 NVL carry 300 GB/s as rated, 319 at 26.562 GB/s each: the line is that of "
        "the file for eight SXM boards, whose cards have eighteen, and was changed with it in one commit"
    ),
}
_PEAK_OF = {"fp32": "fp32_TFLOPS", "bf16_autocast": "bf16_TFLOPS", "fp16_autocast": "fp16_TFLOPS"}


def peak_of(family: str, hardware: HardwareKey, *names: str) -> float | None:
    """The highest of the trusted peaks with these names over the products that a pattern may mean; None without any."""
    found = [
        product.peaks[name].value
        for product in catalogue().products
        for name in names
        if product.family == family
        and hardware.product in (None, product.product)
        and hardware.memory in (None, product.memory)
        and name in product.peaks
        and product.peaks[name].trusted
    ]
    return max(found, default=None)


def why_implausible(family: str, entry: Entry) -> str:
    """Why an entry's value cannot be, by the datasheet alone; empty where it can, or where no peak is known."""
    values = entry.value if isinstance(entry.value, tuple) else (entry.value,)
    most, least = max(values), min(values)  # type: ignore[type-var]
    if not isinstance(most, int | float) or not isinstance(least, int | float):
        return ""
    if entry.metric == "time_s":
        return _too_short(family, entry, float(least))
    suffix, peak = rate_suffix(entry.metric), published_ceiling(entry, family)
    if suffix is None or peak is None:
        return ""
    share = float(most) * RATE_UNITS[suffix] / peak.value
    if share <= most_share(peak):
        return ""
    how = (
        "out of a cache, or not counted as it is said"
        if suffix == "traffic_GBps"
        else "not counted as it is said"
    )
    return f"{most:g} {entry.unit} is {share:.0%} of the datasheet's {format_ceiling(peak)}: {how}"


def _too_short(family: str, entry: Entry, least_s: float) -> str:
    flops, peak_name = flops_of(entry.benchmark, entry.parameters)
    peak = peak_of(family, entry.hardware, peak_name) if flops else None
    if not flops or peak is None:
        return ""
    reached = flops / least_s / 1e12
    if reached <= UPPER_BOUND * peak:
        return ""
    return f"{reached:.3g} TFLOP/s is {reached / peak:.0%} of the datasheet's {peak:g} TFLOP/s: it was not waited for"


def flops_of(benchmark: str, parameters: dict[str, Scalar]) -> tuple[int, str]:
    """The FLOPs of a case of ours, and the peak they are held against; 0 where the case does not say enough."""
    if benchmark == "attention":
        sequence, d_model = int(str(parameters["sequence"])), int(str(parameters["d_model"]))
        passes = str(parameters["passes"])
        return attention_flops(8, 1, sequence, sequence, d_model, causal=True, passes=passes)[
            "flops"
        ], "fp32_TFLOPS"
    if benchmark == "flash_attention_leaderboard":
        return attention_flops(1, 16, 16384, 16384, 64, causal=True, passes="both")[
            "flops"
        ], "bf16_TFLOPS"
    if benchmark not in ("transformer", "transformer_warm_up") or "size" not in parameters:
        return 0, ""
    # Batch and context of the warm-up test are its own.
    context = parameters.get("context", 256 if benchmark == "transformer_warm_up" else None)
    if context is None or "batch" not in parameters:
        return 0, ""
    shape = SIZES[str(parameters["size"])]
    flops = transformer_flops(
        shape.d_model, shape.d_ff, shape.layers, shape.vocab, int(str(parameters["batch"])), int(str(context)),
        passes=str(parameters["passes"]),
    )["flops"]  # fmt: skip
    return flops, _PEAK_OF[str(parameters.get("precision", "fp32"))]


def said_by_source(figure: Figure) -> str:
    """What the survey of the source found out already."""
    if "DO NOT use as baseline" in figure.convention:
        return (
            "out of the L2 cache: 3.8 times the peak of the memory, says the survey of its source"
        )
    return _MISTAKEN.get((figure.source, figure.metric), "")


@dataclass(frozen=True, slots=True)
class Series:
    """What a document has of the same thing under other conditions, for what one figure alone does not show."""

    figures: Sequence[Told]

    def why_implausible(self, one: Told, line: Line) -> str:
        """Why a time of a document cannot be a steady one; empty where it can."""
        if one.benchmark == "transformer" and one.parameters.get("warmup_steps") == 0:
            return "the mean of ten steps of which the first had to start everything: no steady step takes so long"
        if one.benchmark == "transformer_warmup_effect" or one.parameters.get("warmup") == "no":
            return "the first step of a process, which has to start everything: no steady step takes so long"
        if line.metric != "time_s":
            return ""
        return self._under_the_profiler(one) or self._not_waited_for(one)

    def _under_the_profiler(self, one: Told) -> str:
        if one.metric != "profiler_ms" and one.parameters.get("timer") != "nsys":
            return ""
        same = ("size", "passes", "context_length")
        timed = [
            other.value
            for other in self.figures
            if other.document == one.document
            and other.metric == "step_ms"
            and other.benchmark == "transformer"
            and "timer" not in other.parameters
            and not other.parameters.get("compiled")
            and other.parameters.get("warmup_steps") != 0
            and all(other.parameters.get(name) == one.parameters.get(name) for name in same)
            and other.parameters.get("precision", "fp32") == "fp32"
            and other.value is not None
        ]
        if not timed or one.value >= PROFILER_SHARE * min(timed):
            return ""
        return (
            f"{one.value:g} ms in the profiler, {min(timed):g} ms by the clock of the same document: the profiler did "
            "not see all of it"
        )

    def _not_waited_for(self, one: Told) -> str:
        """A forward pass of attention writes what it leaves for the backward pass; that takes its time."""
        if one.benchmark != "attention" or one.metric != "forward_ms" or one.value is None:
            return ""
        peak = peak_of("a100", AMPERE_GBPS_PRODUCT, "memory_GBps")
        written = {
            other.parameters["sequence_length"]: other.value
            for other in self.figures
            if other.metric == "memory_before_backward_MB" and other.document == one.document
            and other.parameters["d_model"] == one.parameters["d_model"]
        }  # fmt: skip
        mine = {
            other.parameters["sequence_length"]: other.value
            for other in self.figures
            if other.metric == "forward_ms" and other.document == one.document and other.value is not None
            and other.parameters["d_model"] == one.parameters["d_model"]
        }  # fmt: skip
        if peak is None or not written:
            return ""
        longest = max(mine)
        rate = written[longest] / mine[longest]
        if rate <= UPPER_BOUND * peak:
            return ""
        return (
            f"a forward pass that does not grow with the sequence was not synchronised: at {longest} it would have "
            f"written {written[longest]:g} MB in {mine[longest]:g} ms, {rate:.0f} GB/s"
        )
