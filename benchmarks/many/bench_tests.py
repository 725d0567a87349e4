"""The tests of a made-up nightly run: what each measures, and how long it takes on a GPU without faults."""

from dataclasses import dataclass

from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Key, Timing
from pytest_roofline.core.work import Work

MIB = 2**20
ONE = HardwareKey("h200-sxm", "141gb", "none", 1, "none")
PAIR = HardwareKey("h200-sxm", "141gb", "none", 2, "nvlink-switch")
# Rates of one GPU without faults, in bytes or FLOPs per second; about those of an H200.
MEMORY, HOST, PEER, MATRIX = 4.2e12, 55e9, 380e9, 700e12
# Before the first byte or FLOP, in seconds.
LATENCY_S = 4e-6


@dataclass(frozen=True, slots=True)
class Bench:
    """One test.

    Args:
        key: of the measurement.
        work: of one call.
        kind: what a fault strikes: `memory`, `host link`, `peer link`, `arithmetic`, `collectives`.
        seconds: of one call on a GPU without faults.
        pair: the GPUs of a copy between two; None of anything else.
    """

    key: Key
    work: Work
    kind: str
    seconds: float
    pair: tuple[int, int] | None = None


def of_one_gpu() -> list[Bench]:
    """What every GPU runs by itself."""
    found = []
    for size in (4096, 64 * MIB, 512 * MIB):
        work = Work(read_bytes=size, write_bytes=size, payload_bytes=size)
        found.append(
            _bench(
                "memcpy_d2d", {"size_bytes": size}, work, "memory", LATENCY_S + 2 * size / MEMORY
            )
        )
    for number, operation in enumerate(("copy", "scale", "add", "triad")):
        work = Work(read_bytes=512 * MIB * (1 + number // 2), write_bytes=512 * MIB)
        found.append(
            _bench("stream", {"operation": operation}, work, "memory", work.traffic_bytes / MEMORY)
        )
    for way in ("h2d", "d2h"):
        for size in (64 * MIB, 512 * MIB):
            work = Work(payload_bytes=size, wire_bytes=size)
            facts = {"size_bytes": size, "memory": "pinned"}
            seconds = LATENCY_S + size / HOST
            found.append(
                _bench(
                    f"memcpy_{way}", facts, work, "host link", seconds, "pinned_auto_payload_GBps"
                )
            )
    for width in (4096, 8192, 16384):
        work = Work(flops=2 * width**3)
        found.append(
            _bench(
                "matmul", {"width": width}, work, "arithmetic", work.flops / MATRIX, "bf16_TFLOPS"
            )
        )
    for sequence in (4096, 16384):
        work = Work(flops=4 * 16 * 128 * sequence**2)
        found.append(
            _bench(
                "attention",
                {"sequence": sequence},
                work,
                "arithmetic",
                work.flops / 5e14,
                "bf16_TFLOPS",
            )
        )
    return found


def of_a_node(gpus: int) -> list[Bench]:
    """What the first GPU's run measures besides: copies between all pairs, and collectives over all GPUs."""
    found = []
    size = 512 * MIB
    for source in range(gpus):
        for target in range(gpus):
            if source != target:
                facts = {"source": source, "target": target, "size_bytes": size}
                work = Work(payload_bytes=size, wire_bytes=size)
                key = Key(
                    "peer_copy_one_way", dict(facts), "auto_payload_GBps", PAIR, "rotate", "device"
                )
                found.append(
                    Bench(key, work, "peer link", LATENCY_S + size / PEER, (source, target))
                )
    everyone = HardwareKey("h200-sxm", "141gb", "none", gpus, "nvlink-switch")
    for name in ("all_reduce", "all_gather"):
        work = Work(algbw_bytes=size, busbw_bytes=size * 2 * (gpus - 1) // gpus)
        timing: Timing = "pipelined"
        facts = {"world_size": gpus, "size_bytes": size}
        key = Key(name, dict(facts), "busbw_GBps", everyone, "warm", timing)
        found.append(Bench(key, work, "collectives", work.busbw_bytes / 4e11))
    return found


def _bench(name, parameters, work, kind, seconds, metric=None):
    return Bench(
        Key(name, parameters, metric or work.metric, ONE, "rotate", "device"), work, kind, seconds
    )
