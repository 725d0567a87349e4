"""A fake that behaves as an H100 does, as far as anybody knows without one, and the places of what is planted in it.

Each value has its source: a finding of the reading against the vendors' sources (A1 to A16), a vendor's page, or the
fakes of the engine's tests. What a card finds otherwise is disproved on its page, and mended here.
"""

import json
import os
from typing import Any

from pytest_roofline.engine.devices.fake import FakeDevice

MIB = 2**20
# Handed to the processes of the stages.
PLANTED = "ROOFLINE_PLANTED"
PRODUCT = "NVIDIA H100 80GB HBM3"

DEVICE: dict[str, Any] = {
    "product": PRODUCT,
    # NVIDIA H100 datasheet: 50 MB of L2, 80 GB of memory; nvidia-smi -q: 1980 MHz at most.
    "cache_bytes": 50 * MIB,
    "clock_hz": 1.98e9,
    # NVML's clock info of an idle card, 345 MHz; how long it takes to rise is not known: A4 tried 5 to 100 ms.
    "clock_ramp_s": 0.1,
    # CUDA Runtime API, cudaEventElapsedTime: a resolution of around 0.5 µs.
    "tick_s": 0.5e-6,
    # The fakes of the engine's tests: what a stamp, a launch, and a start on an idle device take.
    "pair_s": 1e-6,
    "launch_s": 8e-6,
    "record_s": 1.5e-6,
    "latency_s": 4e-6,
    "queue_depth": 1024,
    # A2: short kernels of Hopper save 15 to 40 % against a stream.
    "launch_gap_s": 1e-6,
    # A3: the first replay pays an upload, tried with 0.4 and 0.8 µs a node.
    "graph_upload_s": 0.6e-6,
    # A4: most of L2 may hold what a copy wrote.
    "dirty_share": 1.0,
    # NVIDIA H100 SXM datasheet: up to 700 W.
    "power_cap_w": 700.0,
    # A5: NVML's first account shows a few hundred MB to about 1 GB on an empty card, 912 MB on an A100; a context
    # takes 0.45 to 0.6 GB.
    "driver_bytes": 600 * MIB,
    "context_bytes": 500 * MIB,
    # A12: not known; at 3 ms a round would be an eighth of a short measurement.
    "counters_s": 1e-3,
}  # fmt: skip

LAB: dict[str, Any] = {
    # 3350 GB/s by the datasheet, of which nine tenths can be had.
    "memory_bytes_per_s": 3.0e12,
    # A kernel or copy too short for its bytes to matter.
    "shortest_s": 2.5e-6,
    # A product of [8192, 8192] matrices at 734 of 989 TFLOP/s, and what it would draw without a cap: A6 expects
    # 1980 MHz to fall to about 1.5 GHz.
    "product_s": 1.5e-3,
    "product_w": 700 * 1980 / 1500,
    # A9: comparing a pair waits for the device; a slab of 64 MiB is compared at once.
    "pair_check_s": 40e-6,
    "slab_check_s": 200e-6,
    # A10: torch takes the next power of two of page-locked memory.
    "pinned_share": 1.0,
    "pinned_left": 0,
}  # fmt: skip


# TFLOP/s by head dimension: ours as they are foreseen, the others' as they were published
# for an H100 (tritonbench #141, and the table of TLX and FlashAttention-3), between which cuDNN's are put here.
FORWARD = {
    "triton": {64: 330, 128: 455},
    "gluon": {64: 410, 128: 640},
    "sdpa_flash": {64: 320, 128: 400},
    "sdpa_cudnn": {64: 480, 128: 650},
}
BACKWARD = {
    "triton": {64: 260, 128: 300},
    "sdpa_flash": {64: 250, 128: 290},
    "sdpa_cudnn": {64: 480, 128: 540},
}
CAUSAL = {"triton": 0.88, "gluon": 0.93, "sdpa_flash": 0.88, "sdpa_cudnn": 0.88}


def planted() -> dict[str, Any]:
    """What was planted in the fake of this process, by name."""
    return dict(json.loads(os.environ.get(PLANTED, "{}")))


def faithful(**changes: Any) -> FakeDevice:
    """The fake, with what is planted in it; names of other places are left out."""
    known = {
        name: changes[name] for name in changes if name not in LAB and not name.startswith("suite_")
    }
    return FakeDevice(**DEVICE | known)


def lab_facts(**changes: Any) -> dict[str, Any]:
    """What its workloads take, with what is planted in them."""
    return LAB | {name: changes[name] for name in changes if name in LAB}
