"""The GPU architectures for attention: their shared memory, and those that Triton does not support well."""

import torch

# Bytes of shared memory (LDS) that one program may use. Source: CUDA C++ programming guide, "Technical specifications
# per compute capability" (the opt-in maximum less the 1 KiB that the driver keeps); AMD's CDNA ISA guides.
SHARED_BYTES = {
    "sm_70": 98_304,
    "sm_75": 65_536,
    "sm_80": 166_912,
    "sm_86": 101_376,
    "sm_87": 166_912,
    "sm_89": 101_376,
    "sm_90": 232_448,
    "sm_100": 232_448,
    "sm_103": 232_448,
    "sm_120": 101_376,
    "sm_121": 101_376,
    "gfx90a": 65_536,
    "gfx942": 65_536,
    "gfx950": 163_840,
}
# Architectures without configurations of their own use those of another one, which has as much shared memory, and the
# same or older matrix instructions.
LIKE = {
    "sm_87": "sm_80",
    "sm_103": "sm_100",
    "sm_120": "sm_89",
    "sm_121": "sm_89",
}
REFUSED = {
    "sm_70": "Triton has had no matrix instructions for it since 3.2, so a kernel of it would run on the scalar units",
    "sm_75": "Triton has had no matrix instructions for it since 3.2, so a kernel of it would run on the scalar units",
}


# The Triton of the oldest torch that the package supports.
OLDEST_TRITON = (3, 6)


class NoSuchArchitecture(ValueError):
    """The kernels are not made for this architecture; the message says what to use in their place."""


def architecture_of(device: torch.device) -> str:
    """Return the name of a device's architecture: `sm_90`, `gfx942`; `interpreter` for a CPU.

    Raises:
        NoSuchArchitecture: Triton has nothing for this kind of device.
    """
    if device.type == "cpu":
        return "interpreter"
    if device.type != "cuda":
        raise NoSuchArchitecture(
            f"flash_attention was given tensors on {device.type}; expected CUDA or ROCm, or the CPU for checking; "
            "torch.nn.functional.scaled_dot_product_attention runs there"
        )
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return str(properties.gcnArchName).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def configured_as(architecture: str) -> str:
    """Return the architecture whose configurations this one uses: itself, or a similar one.

    Raises:
        NoSuchArchitecture: it is unknown, or refused.
    """
    if architecture in REFUSED:
        raise NoSuchArchitecture(
            f"flash_attention on {architecture}: {REFUSED[architecture]}; expected sm_80 or newer, and "
            "scaled_dot_product_attention's memory-efficient back end here"
        )
    if architecture == "interpreter":
        return architecture
    if architecture not in SHARED_BYTES:
        known = ", ".join(name for name in SHARED_BYTES if name not in REFUSED)
        raise NoSuchArchitecture(
            f"flash_attention on {architecture}: no configuration is known for it; expected one of {known}, or one "
            "added to roofline_kernels/attention/architectures.py"
        )
    return LIKE.get(architecture, architecture)


def require_triton() -> None:
    """Raise an error unless Triton can compile the kernels.

    Raises:
        ImportError: Triton is not installed or too old. The error's `name` is "triton".
    """
    import triton

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < OLDEST_TRITON:
        needed = ".".join(map(str, OLDEST_TRITON))
        raise ImportError(
            f"flash_attention needs Triton {needed} or newer, found {triton.__version__}",
            name="triton",
        )
