"""The assembler's message on matrix instructions that wait for one another, which Triton drops."""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from .targets import TIMEOUT_S

_SERIALIZED = re.compile(
    r"\((?P<code>C75\d\d)\)[^:]*: (?P<words>wgmma\.mma_async instructions are serialized due to .*?)"
    r"(?: in (?:the )?function .*)?$",
    re.MULTILINE,
)


def why_serialized(compiled_kernel: Any) -> str:
    """Return the assembler's reason why it made matrix instructions wait for one another (serialized them).

    The kernel's PTX is assembled once more, which takes about a second. The text is empty without
    PTX or a reason, and where the assembler cannot be run.
    """
    from triton.backends.nvidia.compiler import get_ptxas

    ptx, capability = compiled_kernel.asm.get("ptx"), compiled_kernel.metadata.target.arch
    if ptx is None:
        return ""
    with tempfile.TemporaryDirectory(prefix="roofline-ptx-") as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        arguments = ("-v", f"--gpu-name=sm_{capability}a", str(source), "-o", f"{source}.cubin")
        try:
            process = subprocess.run(
                [get_ptxas(capability).path, *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            return ""
    return words_on_waits(process.stderr)


def words_on_waits(text: str) -> str:
    """Return the first reason in the output of `ptxas -v`.

    It reads `wgmma.mma_async instructions are serialized … (C7515)`.
    """
    match = _SERIALIZED.search(text)
    return f"{match['words']} ({match['code']})" if match else ""
