"""What is foreseen of a card: each figure with its source, and what of the project rests on it.

A constant of the engine is imported and not repeated, so that a row asks of a card what the engine takes for granted.
"""

import math
from dataclasses import dataclass

import attention_model

from pytest_roofline.engine.blocks.conditions import (
    MOST_ASKING,
    MOST_OTHERS_BUSY,
    OTHERS_BYTES,
    PROBE_SPREAD,
)
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.cuda import CUDA, HIP
from pytest_roofline.engine.devices.fake import IDLE_CLOCK
from pytest_roofline.engine.sizing.calibration import DEEPEST, MOST_ATTEMPTS, WARM_S
from pytest_roofline.engine.sizing.plans import LEAST_LEFT, MOST_LOST
from pytest_roofline.engine.sizing.shape import LONGEST_BLOCK_S
from pytest_roofline.machine.selftest import COLD_ADVANTAGE, SPIN_TOLERANCE
from pytest_roofline.stats.outlook import DEFAULT_TOLERANCES


@dataclass(frozen=True, slots=True)
class Prediction:
    """One row of the page.

    Args:
        name: short, and never changed: rows of several cards are compared by it.
        stage: that asks.
        what: in words.
        fact: whose values are looked at, as a pattern of the shell; all that fit must be as foreseen.
        value: of each fact.
        least: what it is at least.
        most: what it is at most.
        unit: `s`, `bytes`, `Hz`, `FLOP/s`, `share` or nothing for a count; `yes` for what holds or does not.
        source: of the figures.
        rests: the sentence of the documentation, the switch of the fake or the constant that stands on it.
        product: a part of the name of the products that it is foreseen of; empty for any.
    """

    name: str
    stage: str
    what: str
    fact: str
    value: str
    least: float
    most: float
    unit: str
    source: str
    rests: str
    product: str = ""

    def holds(self, found: float) -> bool:
        """Whether a value is as foreseen; the last digit of a product of decimals is no matter."""
        slack = 1e-9 * max(abs(found), 1e-9)
        return self.least - slack <= found <= self.most + slack


def predictions(device_type: str) -> tuple[Prediction, ...]:
    """Everything that is foreseen of devices of a type: `cuda`, `hip`, `cpu`, `fake`."""
    return (
        *probe(HIP if device_type == "hip" else CUDA),
        *TRUST,
        *COPIES,
        *ATTENTION,
        *MODEL,
        *GATE,
        *LAST,
    )


# What nobody has measured: tried on the fake, and put into words by whoever read the vendors' sources.
ASSUMED = "assumed, of no measurement"


def probe(traits: Traits) -> tuple[Prediction, ...]:
    """Of stage 1, as the engine takes it for granted of such devices."""
    # What the shortest sample may be off by, and half of a step of its clock at either end.
    dearest_pair_s = traits.precision * traits.shortest_span_s + traits.tick_s
    row = Prediction
    return (
        row("clock risen", "probe", "a card's clock has risen from idle after so much work", "clock: ramp", "risen_s",
            0, MOST_ATTEMPTS * WARM_S, "s", "calibration.MOST_ATTEMPTS × WARM_S", "clock_ramp_s; timing.md, warm-up"),
        row("idle clock", "probe", "the first spin's clock, of the full one", "clock: ramp", "first_share",
            0.95 * IDLE_CLOCK, 1.05, "share", "NVML: 345 of 1980 MHz on an idle H100", "clock_ramp_s, IDLE_CLOCK"),
        row("full clock", "probe", "the spin counts the clock that kernels run by", "clock: settled", "full_hz",
            0.98 * 1.98e9, 1.02 * 1.98e9, "Hz", "nvidia-smi -q of an H100: 1980 MHz at most", "clock_hz", "H100"),
        row("tick", "probe", "the step of the events' clock", "stamps: tick", "step_s", 0, 1.01 * traits.tick_s, "s",
            "Traits.tick_s: the vendors' manuals", "tick_s; timing.md, 200 ticks a sample"),
        row("event pair", "probe", "an empty pair of events", "stamps: pair", "median_s", 0, dearest_pair_s, "s",
            "Traits.precision × shortest_span_s, and a tick", "pair_s; timing.md: overhead is never subtracted"),
        row("launch", "probe", "host seconds to submit a kernel", "host: launch", "host_s", 0, 20e-6, "s",
            "the self test's own tests hold up to 20 µs", "launch_s"),
        row("record", "probe", "host seconds to record an event", "host: launch", "record_host_s", 0, 3e-6, "s",
            "the self test's own tests hold up to 3 µs", "record_s"),
        row("queue", "probe", "entries that fit behind a spin", "host: launch", "queue_depth", 256, DEEPEST, "",
            "the self test's own tests hold from 256 on", "queue_depth; timing.md, shape of a block"),
        row("start", "probe", "from submitting to starting on an idle device", "host: start", "latency_s", 0, 10e-6,
            "s", "the self test's own tests hold up to 10 µs", "latency_s"),
        row("driver memory", "probe", "what NVML's first account shows above its second", "memory: accounts",
            "driver_bytes", 200e6, 1.1e9, "bytes", "nvml.h: nvmlMemory_v2_t; of an A100: nvml-wrapper#57, sichek#113",
            "driver_bytes: why the second is asked"),
        row("context", "probe", "what a process's context takes", "memory: accounts", "context_bytes", 0.45e9, 0.6e9,
            "bytes", ASSUMED, "context_bytes, base.OWN_CONTEXT_BYTES"),
        row("others' memory", "probe", "memory of others on a card that we have for ourselves", "memory: neighbours",
            "others_bytes", 0, OTHERS_BYTES, "bytes", "conditions.OTHERS_BYTES", "timing.md, neighbours"),
        row("others at work", "probe", "others at work on a card that we have for ourselves", "memory: neighbours",
            "others_busy", 0, MOST_OTHERS_BUSY, "share", "conditions.MOST_OTHERS_BUSY", "timing.md, neighbours"),
        row("causes", "probe", "causes that slow an idle card, beside the power cap", "memory: causes", "active", 0, 0,
            "", "the card is healthy", "throttle; timing.md, excluded blocks"),
        row("questions", "probe", "a round of questions to the management library", "questions: round", "seconds",
            0, MOST_ASKING * LONGEST_BLOCK_S, "s", "conditions.MOST_ASKING × shape.LONGEST_BLOCK_S",
            "counters_s; conditions.py: asked at every block"),
        row("captured", "probe", "a graph of short calls can be captured", "graphs: *", "captured", 1, 1, "yes",
            "torch's manual of CUDA graphs", "capture_fails; timing.md, graph"),
        row("saved", "probe", "what a replay saves of a short call", "graphs: * of 4 KiB", "saved_share", 0.15, 0.40,
            "share", ASSUMED + ", of Hopper", "launch_gap_s; timing.md, graph"),
        row("believed", "probe", "what a replay leaves of its calls' time", "graphs: *", "left_share", LEAST_LEFT,
            1 + MOST_LOST, "share", "sizing.LEAST_LEFT, 1 + MOST_LOST", "timing.md: a replay is believed unless …"),
        row("upload", "probe", "what a node costs the first replay more than a later one", "graphs: *", "upload_s",
            0.4e-6, 0.8e-6, "s", "cudaGraphInstantiate without an upload; how long: " + ASSUMED,
            "graph_upload_s; timing.md: the first replay does not count"),
        row("cold reads", "probe", "a read behind a flush, faster than memory by", "cold: read of *", "advantage",
            -1, COLD_ADVANTAGE, "share", "selftest.COLD_ADVANTAGE", "cache_bytes; timing.md, flush"),
        row("write-back", "probe", "of the cache, what a cold copy leaves in it unwritten", "cold: copy", "dirty_share",
            0.6, 1.0, "share", "L2 is write-back (CUDA C++ Programming Guide); how much: " + ASSUMED,
            "dirty_share: why the flush is proven by reads"),
        row("slabs", "probe", "verifying a slab at once, of its pairs one by one", "verification: pairs", "share", 0,
            0.1, "share", "a comparison waits for the device: one instead of thousands",
            "writing-tests.md, verify; memcpy.Same"),
        row("most sets", "probe", "verifying the most sets of a rotation", "verification: pairs", "most_sets_s", 0,
            60 / 42, "s", "60 s for the 42 tests of -k memcpy", "commands.md: quick takes less than a minute"),
        row("pinned", "probe", "page-locked memory taken, of the next power of two", "pinned: *",
            "of_power_of_two", 0.49, 1.01, "share", "torch's CachingHostAllocator", "memcpy.memory_needed"),
        row("unpinned", "probe", "page-locked memory left when it is given back", "pinned: *", "left_share",
            0, 0.01, "share", "torch's _host_emptyCache", "Device.release"),
        row("power cap", "probe", "the clock lost to the power cap under matrix products", "droop: products", "droop",
            PROBE_SPREAD, 0.30, "share", "700 W cards: 1980 to about 1500 MHz; " + ASSUMED,
            "power_cap_w; conditions.PROBE_SPREAD", "H100"),
        row("power cap told", "probe", "the management library tells of the power cap then", "droop: products", "told",
            1, 1, "yes", "nvml.h: clocks' event reasons", "timing.md: the power cap excludes nothing", "H100"),
        row("stream restored", "probe", "after a failed capture the stream is the one before", "failed capture: after",
            "stream_restored", 1, 1, "yes", "torch.cuda.graph, CUDAGraph::capture_end", "timing.md: as they were"),
        row("memory given back", "probe", "after a failed capture memory can be given back", "failed capture: after",
            "given_back", 1, 1, "yes", "torch.cuda.graph, CUDAGraph::capture_end", "timing.md: as they were"),
        row("second capture", "probe", "after a failed capture a second one works", "failed capture: after", "again", 1,
            1, "yes", "torch.cuda.graph, CUDAGraph::capture_end", "capture_fails; timing.md: as they were"),
        row("random numbers", "probe", "behind that second capture random numbers can be drawn",
            "failed capture: after", "random", 1, 1, "yes", "torch's CUDAGeneratorState::capture_epilogue",
            "sizing: an empty graph behind a failed capture"),
    )  # fmt: skip


def _ran(stage: str, command: str, what: str, rests: str) -> Prediction:
    return Prediction(
        f"{command} ran",
        stage,
        f"{what}: exit status",
        command,
        "status",
        0,
        0,
        "",
        "the command's own help",
        rests,
    )


def _sound(stage: str) -> Prediction:
    return Prediction(
        f"{stage} valid", stage, "measurements that are INVALID", "soundness", "invalid", 0, 0, "",
        "a healthy card that we have for ourselves", "timing.md: the power cap excludes nothing",
    )  # fmt: skip


_APART = DEFAULT_TOLERANCES["device"]
TRUST = (
    # 1 is a host too busy to measure its CPU, where that is all there is.
    Prediction("doctor ran", "trust", "roofline doctor: exit status", "doctor", "status", 0, 1, "", "its help",
               "commands.md"),
    Prediction("selftest", "trust", "properties of the self test that fail, of two times", "selftests", "failing", 0,
               0, "", "a healthy card", "timing.md, roofline doctor"),
    Prediction("calibrations", "trust", "how far the spin of two processes is apart", "calibrations", "spin_apart", 0,
               SPIN_TOLERANCE, "share", "selftest.SPIN_TOLERANCE", "clock_ramp_s; calibration.py"),
)  # fmt: skip
COPIES = (
    Prediction("memcpy ran", "copies", "quick memcpy: exit status", "memcpy ?", "status", 0, 0, "", "a healthy card",
               "README: -k memcpy"),
    Prediction("memcpy minute", "copies", "quick memcpy: seconds on the wall", "memcpy ?", "seconds", 0, 60, "s",
               "README", "commands.md: quick takes less than a minute for -k memcpy"),
    Prediction("stream ran", "copies", "STREAM: exit status", "stream ?", "status", 0, 0, "", "a healthy card",
               "README"),
    Prediction("A/A", "copies", "the same test three times: how far apart", "A/A of *", "apart", 0, _APART, "share",
               "outlook.DEFAULT_TOLERANCES", "README: 5 % by default; verdicts.md"),
    Prediction("modes", "copies", "tests that were timed in another way once", "A/A of *", "flipped", 0, 0, "",
               "sizing.py: a replay is judged by its work", "timing.md, graph"),
    Prediction("resident", "copies", "copies that could not be had cold", "soundness", "cache_resident", 0, 0, "",
               "calls.py: sizes alone decide", "timing.md, cache"),
    Prediction("graphs", "copies", "copies that were refused a graph", "soundness", "graph_refused", 0, 0, "",
               "torch's manual of CUDA graphs", "timing.md, graph"),
    _sound("copies"),
    _ran("gemm", "gemm", "GEMM", "README"),
    _sound("gemm"),
)  # fmt: skip


# The longest row of the sweep, 16,384, or that of a quarter of an hour, 8,192.
# From the compiled code and a model of its instructions, before any card has run it: see `attention_model.py`.
_MODEL = "modelled from what the kernels compile to for sm_90"
_FIGURES = {one.name: one for one in attention_model.predictions()}


def _foreseen(name: str) -> tuple[str, float, float, str]:
    """Which value of a fact, its least and its most, and the unit."""
    one = _FIGURES[name]
    return one.value, one.least, math.inf if one.most is None else one.most, one.unit


def _forward(head_dim: int) -> Prediction:
    return Prediction(
        f"forward d{head_dim}", "attention", f"our forward pass, head dimension {head_dim}, long, no mask",
        f"ours forward d{head_dim} full s[18]*", *_foreseen(f"forward d{head_dim}"), _MODEL, "suite.md", "H100",
    )  # fmt: skip


def _in_gluon(name: str, what: str, fact: str) -> Prediction:
    return Prediction(
        f"gluon {name}", "attention", f"our forward pass in Gluon, {what}", f"ours in Gluon forward {fact} s[18]*",
        *_foreseen(f"gluon {name}"), _MODEL, "suite.md", "H100",
    )  # fmt: skip


ATTENTION = (
    _ran("attention", "attention", "the sweep", "suite.md"),
    _forward(64),
    _forward(128),
    _in_gluon("forward d64", "head dimension 64, long, no mask", "d64 full"),
    _in_gluon("forward d128", "head dimension 128, long, no mask", "d128 full"),
    _in_gluon("causal", "slower under a causal mask by", "d* causal"),
    _in_gluon("of the best forward", "of the best back end's rate, head dimension 128", "d128 full"),
    _in_gluon("over flash", "over SDPA's flash", "d* full"),
    Prediction("causal", "attention", "a causal forward pass is slower by", "ours forward d* causal s[18]*",
               *_foreseen("causal"), _MODEL, "suite.md", "H100"),
    Prediction("backward", "attention", "our backward pass", "ours backward d* full s[18]*",
               *_foreseen("backward"), _MODEL, "suite.md", "H100"),
    Prediction("backward d128 causal", "attention", "our backward pass under a causal mask, head dimension 128",
               "ours backward d128 causal s16384", *_foreseen("backward d128 causal"), _MODEL, "suite.md", "H100"),
    Prediction("of the best forward", "attention", "of the best back end's rate, head dimension 128",
               "ours forward d128 full s[18]*", *_foreseen("of the best forward"), _MODEL, "suite.md", "H100"),
    Prediction("of the best backward", "attention", "of the best back end's rate, head dimension 128",
               "ours backward d128 full s[18]*", *_foreseen("of the best backward"), _MODEL, "suite.md", "H100"),
    Prediction("over flash", "attention", "our forward pass over SDPA's flash", "ours forward d* full s[18]*",
               *_foreseen("over flash"), _MODEL, "suite.md", "H100"),
    _ran("attention", "leaderboard", "the leaderboard's step", "suite.md"),
    _sound("attention"),
)  # fmt: skip
MODEL = (
    _ran("model", "transformer", "steps of the transformer", "suite.md"),
    Prediction("compiled", "model", "a compiled step, of the same as it is", "compile over eager: *", "share", 0, 1.0,
               "share", "what compiling is for", "suite.md"),
    Prediction("as a graph", "model", "a step replayed from a graph, of the same as it is", "cuda_graph over eager: *",
               "share", 0, 1.0, "share", "what graphs are for", "suite.md"),
    _ran("model", "memory", "memory against its formula", "suite.md, memory"),
    _ran("model", "precision", "precisions", "suite.md, precisions"),
    _ran("model", "profile", "a profile", "profiles.md"),
    Prediction("profiles", "model", "profiles in its run file", "profile", "profiles", 1, math.inf, "",
               "the command's own help", "profiles.md"),
    _ran("model", "one rank", "one rank over NCCL", "ranks.md"),
    _sound("model"),
)  # fmt: skip
GATE = (
    Prediction("recorded", "gate", "three runs for a baseline: exit status", "baseline ?", "status", 0, 0, "",
               "README", "README: record"),
    _ran("gate", "propose", "roofline baseline propose", "baselines.md"),
    _ran("gate", "approve", "roofline baseline approve", "baselines.md"),
    _ran("gate", "gate", "the same card under --roofline-ci", "README: green means fast enough"),
    _ran("gate", "drill", "a drill of 20 %: every compared test is red", "README: does the gate fail?"),
)  # fmt: skip
LAST = (
    _ran("memcheck", "memcheck", "compute-sanitizer over the Triton kernels", "suite.md"),
    _ran("tuning", "tuning", "tuning of our kernels", "suite.md"),
)
