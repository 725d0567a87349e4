"""Programs that many measure with, where they are installed: nvbandwidth, the nccl-tests and BabelStream.

Their figures have the keys of their imported logs, so published floors and the logs of other nodes meet them.
"""

import shutil

import pytest
import torch

# Copies over the host's link, within a device, and between two.
COPIES = (
    "host_to_device_memcpy_ce",
    "device_to_host_memcpy_ce",
    "device_local_copy",
    "device_to_device_memcpy_write_ce",
)
# The operations with published figures, and the sizes of theirs.
COLLECTIVES = ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf")
SIZES = ("-b", "1G", "-e", "8G", "-f", "8")
STREAMS = ("cuda-stream", "hip-stream")
# Arrays of 2 GiB in double precision, as of `test_stream_large`.
STREAM_ELEMENTS = 2**28


def _installed(names, address):
    """Those of some programs that are installed; without any the test is skipped."""
    present = [name for name in names if shutil.which(name)]
    if not present:
        pytest.skip(f"needs {' or '.join(names)}, found none in PATH; build it from {address}")
    return present


@pytest.mark.roofline(needs="accelerator", tier="nightly")
def test_nvbandwidth(roofline):
    """Copies by the copy engine, among all devices of the node."""
    (program,) = _installed(("nvbandwidth",), "https://github.com/NVIDIA/nvbandwidth")
    roofline.measure_command([program, "-j", "-t", *COPIES], read="nvbandwidth", timeout=1800)


@pytest.mark.roofline(needs="accelerator", tier="nightly")
def test_nccl_tests(roofline):
    """Collectives over all devices of the node, by one process."""
    programs = _installed(
        COLLECTIVES,
        "https://github.com/NVIDIA/nccl-tests (on AMD https://github.com/ROCm/rccl-tests)",
    )
    count = torch.cuda.device_count()
    if count < 2:
        roofline.skip_for_hardware(f"needs 2 GPUs, found {count}")
    for program in programs:
        words = [program, *SIZES, "-g", str(count)]
        roofline.measure_command(words, read="nccl-tests", timeout=1800)


@pytest.mark.roofline(needs="accelerator", tier="nightly")
def test_babelstream(roofline):
    """Copy, mul, add, triad and dot over arrays of 2 GiB."""
    program, *_ = _installed(STREAMS, "https://github.com/UoB-HPC/BabelStream")
    roofline.require_memory(3 * STREAM_ELEMENTS * 8)
    words = [program, "--arraysize", str(STREAM_ELEMENTS)]
    roofline.measure_command(words, read="babelstream", timeout=1800)
