"""GPUs that a build of torch has code for, by CUDA's rules of compatibility."""

import re
from collections.abc import Sequence

# CUDA 13 compiles for no GPU older than Turing. The last wheels that do are those for CUDA 12.6, up to torch 2.14
# (pytorch/pytorch#172352, #190385).
OLDEST, TURING = (5, 0), (7, 5)
OLDER_GPUS = (
    "Wheels for CUDA 12.6 (up to torch 2.14) support {architecture}: "
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
)
OTHER_GPUS = "https://pytorch.org/get-started/locally/ lists builds for other versions of CUDA"
_ENTRY = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def runs(entry: str, capability: tuple[int, int]) -> bool:
    """Return whether a GPU runs what a build has under one entry of `torch.cuda.get_arch_list()`.

    Machine code (`sm_86`) runs from its own minor version on, within one major version. PTX (`compute_90`) is compiled
    for every later GPU. A name that ends in `a` is for that very GPU, one that ends in `f` for its major version. An
    entry in another form counts as running: torch itself then says what is wrong.

    Args:
        entry: such as `sm_90`, `sm_90a` or `compute_90`.
        capability: of the GPU, major and minor.
    """
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return True
    kind, major, minor, suffix = match.groups()
    compiled = int(major), int(minor)
    if suffix == "a":
        return compiled == capability
    is_portable_ptx = kind == "compute" and not suffix
    if is_portable_ptx:
        return compiled <= capability
    return compiled[0] == capability[0] and compiled <= capability


def lack_of_code(capability: tuple[int, int], entries: Sequence[str], version: str) -> str:
    """Return the sentences on a GPU that torch has no code for.

    They also say which build of torch has.

    Args:
        capability: of the GPU, major and minor.
        entries: of `torch.cuda.get_arch_list()`, of which the GPU runs none.
        version: of torch.
    """
    architecture = "sm_{}{}".format(*capability)
    remedy = OLDER_GPUS if OLDEST <= capability < TURING else OTHER_GPUS
    return (
        f"This GPU is {architecture}; torch {version} supports only {', '.join(entries)}. "
        + remedy.format(architecture=architecture)
    )
