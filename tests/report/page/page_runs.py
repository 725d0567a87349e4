"""Runs that hold something of everything that the report's page shows."""

import itertools
import math
import random
from dataclasses import replace

from pytest_roofline.baselines.runs import assemble
from pytest_roofline.core.memory import FailedAllocation, MemoryUse, OutOfMemory
from pytest_roofline.core.profiles import ClassTime, Figure, KernelTime, Profile
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.records import Ceiling, CurveSummary, Fit, Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.samples import Block, Ranks, Samples
from pytest_roofline.core.verdicts import ExactVerdict, FigureChange
from pytest_roofline.core.work import Work

MIB = 2**20
PEAK = Ceiling("traffic_GBps", 4.8e12, "datasheet", "NVIDIA H200 datasheet")
MODEL = Ceiling("TFLOPS", 9.89e14, "datasheet", "NVIDIA H200 datasheet")
# What pytest, a file name or a driver may hand over.
HOSTILE = "</script><script>window.pwned=1</script>\"><img src=x onerror='window.pwned=2'>"
HOSTILE += "{{7*7}}\u202e\x1b[31m\x00\u2028&amp;"


def everything(make, path):
    """A sweep of copies with a baseline, collectives, peers, attention, steps, kernels, and every way to end."""
    records = [*_copies(make), *_collectives(make), *_peers(make), *_attention(make), *_steps(make)]
    records += [*_kernels(), *_without_time(make)]
    curve = CurveSummary(
        "memcpy_d2d",
        "traffic_GBps",
        15,
        3.9e12,
        {"50%": 2 * MIB, "90%": 32 * MIB},
        Fit(2.1e-6, 3.95e12, 0.01),
    )
    return make.run(
        path,
        *records,
        make.footer(measured=40, not_measured={"needs 4 GPUs, found 1": 2}, curves=(curve,)),
    )


def many(make, path, count, red=2):
    """A run of `count` measurements with verdicts, of which the first few are red."""
    slow, fine = judged(make, 1.3e-3), judged(make, 1e-3)
    chance = random.Random(7)
    records = []
    for index in range(count):
        size = 4096 << (index % 20)
        key = make.key(f"copy_{index // 20}", size)
        seconds = (2e-6 + size / 2e12) * chance.uniform(0.98, 1.02)
        samples = Samples(tuple(seconds * chance.uniform(0.99, 1.01) for _ in range(5)), 10, 1e-9)
        one = make.measurement(key=key, samples=samples, ceiling=PEAK)
        like = slow if index < red else fine
        told = replace(
            like,
            subject=replace(like.subject, test_id=one.test_id, label=one.label),
            difference=replace(like.difference, new_s=seconds, reference_s=seconds),
        )
        outcome = (
            make.outcome(one, "failed", verdicts=("REGRESSED",), by_verdict=True)
            if index < red
            else make.outcome(one)
        )
        records += [one, told, outcome]
    # Writing and reading it would take longer than all else.
    return assemble(
        path, [make.header(path.stem), *records, make.footer(measured=count)], cut=False
    )


def hostile(make, path):
    """A run whose every text from outside tries to be markup, a script, a template or another reading order."""
    key = make.key(HOSTILE, parameters={"size_bytes": MIB, HOSTILE: HOSTILE}, name=HOSTILE)
    result = make.result(1.3e-3, 1.31e-3, 1.32e-3, key=key, test_id=HOSTILE, label=HOSTILE)
    reason, spoiled = f"{HOSTILE}: slower", Block(1, excluded=HOSTILE)
    one = replace(
        result.measurement,
        samples=Samples((1.3e-3, 1.4e-3), 1, 1e-9, blocks=(spoiled, Block(1))),
        ceiling=replace(PEAK, origin=HOSTILE),
    )
    verdict = result.time_verdict
    told = replace(
        verdict,
        reasons=text_reasons(reason),
        subject=replace(
            verdict.subject,
            changed=(HOSTILE,),
            left_out=text_reasons(HOSTILE),
            published=(make.published("reference", source=HOSTILE, note=HOSTILE),),
        ),
        reference=replace(verdict.reference, source=HOSTILE),
    )
    kernel = _kernel("sm_90", name=HOSTILE)
    records = [
        one,
        told,
        make.outcome(one, "failed", reason=reason, verdicts=("REGRESSED",), by_verdict=True),
        kernel,
        ExactVerdict(
            kernel.test_id,
            kernel.label,
            "kernel",
            "REGRESSED",
            target="sm_90",
            name=HOSTILE,
            reason=HOSTILE,
            remarks=(HOSTILE,),
        ),
        OutOfMemory(HOSTILE + "oom", HOSTILE, {}, HOSTILE, HOSTILE, FailedAllocation(HOSTILE)),
        Outcome(HOSTILE + "bad", "failed", reason=HOSTILE),
        Figure(HOSTILE, HOSTILE, "p", HOSTILE, 0.5, "share"),
        replace(_use(), label=HOSTILE, missing=(HOSTILE,)),
        replace(_profile(), label=HOSTILE, missing=(HOSTILE,), device=HOSTILE),
    ]
    for index, size in enumerate((MIB, 2 * MIB, 4 * MIB, 8 * MIB)):
        swept = make.key(HOSTILE, parameters={"size_bytes": size, "mode": HOSTILE})
        records.append(
            make.measurement(
                1e-3 * 2**index, key=swept, test_id=f"{HOSTILE}{size}", label=f"{HOSTILE}{size}"
            )
        )
    return make.run(
        path, *records, make.footer(not_measured={HOSTILE: 1}), product=HOSTILE, driver=HOSTILE
    )


def judged(make, *seconds, **changes):
    """The record of a verdict on processes of these times, against fifteen of a millisecond."""
    return make.result(*seconds, **changes).time_verdict


def _copies(make):
    records = []
    for power in range(15):
        size = 4096 << power
        seconds = 1.5e-6 + 2 * size / 4.0e12
        slower = {7: 1.3, 12: 1.12}.get(power, 1.0)
        key = make.key(size_bytes=size)
        known = make.groups(3, process=0.004, centre=math.log(seconds))
        times = [seconds * slower * factor for factor in (0.998, 1.0, 1.003)]
        result = make.result(
            *times,
            key=key,
            reference=make.reference(*known),
            before={"driver": "550.54"},
            ceiling=PEAK,
        )
        for index, value in enumerate(times):
            samples = Samples(tuple(value * (1 + 0.002 * (n % 5)) for n in range(20)), 10, 1e-9)
            records.append(
                replace(
                    result.measurement, process=f"process-{index}", round=index + 1, samples=samples
                )
            )
        records.append(result.time_verdict)
        failed = result.verdict == "REGRESSED"
        reason = f"Failed: {key.label}: +30 % time REGRESSED, tolerance 5 %" if failed else ""
        records.append(
            make.outcome(
                result.measurement,
                "failed" if failed else "passed",
                reason=reason,
                by_verdict=failed,
            )
        )
    return records


def _collectives(make):
    records = []
    for world, size in itertools.product((2, 4, 8), (MIB, 8 * MIB, 64 * MIB)):
        parameters = {"size_bytes": size, "world_size": world}
        key = make.key("all_reduce", parameters=parameters, metric="busbw_GBps", timing="isolated")
        moved = size * 2 * (world - 1) // world
        late = {"straggler": 1, "lag_s": (0.0, 1e-5, 0.0, 0.0)} if world == 4 else {}
        work, ranks = (
            Work(algbw_bytes=size, busbw_bytes=moved),
            Ranks(world, "local", "nccl", ("node",) * world, **late),
        )
        records.append(
            make.measurement(2e-5 * world + moved / 4e11, key=key, work=work, ranks=ranks)
        )
    return records


def _peers(make):
    work, records = Work(payload_bytes=64 * MIB, wire_bytes=64 * MIB), []
    for source, target in itertools.permutations(range(4), 2):
        parameters = {"size_bytes": 64 * MIB, "source": source, "target": target}
        key = make.key("peer_copy", parameters=parameters, metric="payload_GBps")
        records.append(
            make.measurement(
                64 * MIB / (4e11 if abs(source - target) == 1 else 3e11), key=key, work=work
            )
        )
    return records


def _attention(make):
    records = []
    for backend, speed in (("triton", 4.1e14), ("sdpa", 5.2e14), ("eager", 0.9e14)):
        for sequence in (512, 1024, 2048, 4096):
            key = make.key(
                "flash_attention",
                parameters={"backend": backend, "sequence": sequence},
                metric="TFLOPS",
            )
            flops = 4 * 16 * 128 * sequence**2
            work = Work(
                flops=flops,
                read_bytes=3 * 2 * 16 * 128 * sequence,
                write_bytes=2 * 16 * 128 * sequence,
            )
            records.append(make.measurement(flops / speed, key=key, work=work, ceiling=MODEL))
    return records


def _steps(make):
    records = []
    for mode, seconds in (("eager", 0.14), ("compiled", 0.09)):
        key = make.key("transformer", parameters={"size": "small", "mode": mode}, metric="TFLOPS")
        samples = Samples(
            (seconds,) * 6, 1, 1e-9, first_calls_s=(seconds * 12, seconds * 1.02, seconds)
        )
        work = Work(flops=6 * 10**12, tokens=8192)
        facts = {
            "peak_bytes": 9 * 2**30,
            "held_bytes": 2**30,
            "compile_s": 38.0 if mode == "compiled" else None,
        }
        one = make.measurement(key=key, samples=samples, work=work, ceiling=MODEL, **facts)
        records += [one, judged(make, seconds, key=key, known=False, work=work)]
    figure = Figure(
        "test_ranks.py::test_ddp", "transformer_ranks[2]", "p", "efficiency", 0.873, "share"
    )
    return [*records, _profile(), _use(), figure]


def _profile():
    kernel = KernelTime(
        "void at::native::softmax_kernel<float>(int)", "attention softmax", 4e-3, 0.2, 8
    )
    classes = (ClassTime("matrix product", 1.2e-2, 0.6, 40), ClassTime("attention softmax", 4e-3, 0.2, 8),
               ClassTime("idle", 4e-3, 0.2))  # fmt: skip
    return Profile(
        test_id="test_transformer.py::test_transformer[small-eager]", label="transformer[small-eager]", process="p",
        device="cuda:0", calls=2, on_device=True, measured_s=11e-3, profiled_s=12e-3, span_s=2e-2, busy_s=1.6e-2,
        classes=classes, kernels=(kernel,), distinct=1, trace="step.trace.json.gz",
    )  # fmt: skip


def _use():
    return MemoryUse(
        test_id="test_transformer.py::test_memory", label="transformer_memory[small]", process="p", device="cuda:0",
        name="", peak_bytes=1024 * MIB, phase="backward", device_peak_bytes=1100 * MIB,
        categories={"parameters": 300 * MIB, "activations": 724 * MIB},
    )  # fmt: skip


def _kernel(target, name="", **figures):
    found = {
        "registers": 198,
        "shared_bytes": 114688,
        "spill_stores": 0,
        "spill_loads": 0,
        "matrix_instructions": 24,
    }
    key = ResourceKey("flash_forward", {"target": target}, target, name)
    return Resources(
        key,
        f"test_flash.py::test_resources[{target}]",
        key.label,
        "p",
        found | figures,
        compiler={"triton": "3.9.0"},
    )


def _kernels():
    fine, worse = _kernel("sm_80"), _kernel("sm_90", registers=255, spill_stores=12)
    changes = (
        FigureChange("registers", 198, 255, "worse"),
        FigureChange("spill_stores", 0, 12, "worse"),
    )
    facts = {"changes": changes, "remarks": ("triton 3.8.0 → 3.9.0",)}
    reason = "flash_forward[sm_90]: registers 198 → 255 REGRESSED"
    return [
        fine, ExactVerdict(fine.test_id, fine.label, "kernel", "PASSED", target="sm_80"),
        worse, ExactVerdict(worse.test_id, worse.label, "kernel", "REGRESSED", target="sm_90", **facts),
        Outcome(worse.test_id, "failed", ("REGRESSED",), reason, by_verdict=True),
        Outcome(fine.test_id, "passed", ("PASSED",)),
    ]  # fmt: skip


def _without_time(make):
    """INVALID, out of memory, failed for itself, skipped, expected to fail, interrupted."""
    spoiled = make.key("stream_triad", 8 * MIB)
    busy = "busy neighbours: others worked 40 % of the time on our cores"
    exhausted = OutOfMemory(
        "test_attention.py::test_eager[65536]", "attention", {"sequence": 65536}, "attention[eager-65536]", "cuda:0",
        FailedAllocation("CUDA out of memory. Tried to allocate 64.00 GiB.", 64 * 2**30, free_bytes=40 * 2**30),
        name="", phase="calls",
    )  # fmt: skip
    return [
        make.measurement(1e-3, key=spoiled, invalid=busy), judged(make, 1e-3, key=spoiled, invalid=busy),
        exhausted, Outcome(exhausted.test_id, "passed", ("OUT OF MEMORY",)),
        Outcome("test_own.py::test_data", "failed", reason="AssertionError: the copy differs in 3 of 4096 values"),
        Outcome("test_own.py::test_four", "skipped", reason="needs 4 GPUs, found 1"),
        Outcome("test_own.py::test_known", "failed", reason="xfail: known to be slow"),
    ]  # fmt: skip
