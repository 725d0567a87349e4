"""What healthy machines reached, as others measured it: the records that floors rest on, and those that hold them.

Three files: what two surveys collected, and what was looked up since where a cell was empty or a source had to be read
again. A record keeps its source's own number, counting and statistic; `cells.py` converts.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import CONFIDENCES, HERE, field

from pytest_roofline.core.errors import BadFile

FILES = ("healthy_nvidia.json", "healthy_amd.json", "healthy_found.json")
_KINDS = ("measured", "threshold", "derived")
# Whose machines they are, where the text says it: one cloud's nodes, or one vendor's, are one source.
_OWNERS = ((r"\bAzure\b", "azure-guide"), (r"\bAAC8\b", "amd"))
_VENDOR = {"rocm": "amd", "amd": "amd", "amdresearch": "amd"}
# Read again before floors were made of them, in the version that could be had; the others could not be reached.
READ_AGAIN = (
    "AlizeeChen11/azurehpc-health-checks:",
    "Azure/AI-benchmarking-guide:Azure_Results/ND_A100_v4_results.md",
    "Azure/AI-benchmarking-guide:Azure_Results/ND_H100_v5_results.md",
    "Azure/AI-benchmarking-guide:Azure_Results/ND_H200_v5_results.md",
    "Azure/cluster-health-monitor:",
    "HPE-Japan-Presales/e-learning:",
    "ROCm/system-acceptance-docs:docs/mi300x/performance-bench.rst",
    "YanBC/nvmlc:",
    "ZiyanIshani/vpbenchmarking:results/stream_nvbench",
    "argonne-lcf/ALCFBeginnersGuide:",
    "cissieAB/ifarm-gpus:docs/roofline.md",
    "gengwg/gpu:",
    "https://github.com/NVIDIA/nccl/issues/1264",
    "https://github.com/ROCm/legacy-rocm-build/issues/5070",
    "jdh4/della-gpu-A100:",
    "pc2/GPUInspector.jl:docs/src/devices/",
    "router-gao/cuda-demo:",
    "samuel-bohman/AI-benchmarking-guide:Azure_Results/ND_MI300X_v5_results.md",
    "te42kyfo/gpu-benches:gpu-stream/a100_40.txt",
    "te42kyfo/gpu-benches:gpu-stream/h200.txt",
    "te42kyfo/gpu-benches:gpu-stream/mi210.txt",
    "te42kyfo/gpu-benches:gpu-stream/v100.txt",
    "ukri-bench/benchmark-BabelStream:",
)


@dataclass(frozen=True, slots=True)
class Healthy:
    """One figure that somebody measured on one machine.

    Args:
        id: `healthy_nvidia-0123`, its position in its file.
        product: as the survey calls it: `a100-sxm4-80gb`, `mi250x-128gb-gcd`.
        resource: what was measured: `device_memory_copy`, `peer_one_way`, `gemm_bf16`.
        value: in the source's own counting.
        group: whose machines these are: figures of one group are one source.
        healthy: None where nobody can say.
        gpus: how many took part; of a figure over all pairs of a node, how many those are of.
        link: class of the link between two, where it matters and is stated.
    """

    id: str
    product: str
    resource: str
    metric: str
    value: float
    size: str
    convention: str
    statistic: str
    setting: str
    source: str
    group: str
    kind: str
    confidence: str
    healthy: bool | None
    citable: bool
    gpus: int
    link: str

    @property
    def makes_floors(self) -> bool:
        """Whether a floor may rest on it: measured, healthy, from a source that can be named, no mere guess."""
        sure = self.confidence in ("high", "medium")
        return self.kind == "measured" and self.healthy is True and self.citable and sure

    @property
    def read_again(self) -> bool:
        """Whether its source was read again before floors were made."""
        return self.source.startswith(READ_AGAIN)


def records(files: Sequence[str] = FILES, folder: Path = HERE) -> list[Healthy]:
    """Every record of the files, in their order.

    Raises:
        BadFile: a field is missing, or is not what it should be.
    """
    return [one for name in files for one in _records(folder / name)]


def _records(path: Path) -> Iterable[Healthy]:
    try:
        raw: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadFile(f"{path.name}: {error}; expected a list of records in JSON") from None
    return [of_record(f"{path.stem}-{number:04}", one) for number, one in enumerate(raw)]


def of_record(name: str, raw: dict[str, Any]) -> Healthy:
    """One record; `name` is what errors call it."""
    source, setting = (
        field(name, raw, "source_url_or_repo_path", str),
        field(name, raw, "setting", str),
    )
    healthy = field(name, raw, "healthy", (True, False, "unknown"))
    return Healthy(
        id=name,
        product=field(name, raw, "product", str),
        resource=field(name, raw, "resource", str),
        metric=field(name, raw, "metric", str),
        value=float(field(name, raw, "value", int | float)),
        size=field(name, raw, "size_or_shape", str),
        convention=field(name, raw, "counting_convention", str),
        statistic=field(name, raw, "statistic", str),
        setting=setting,
        source=source,
        group=raw.get("independence_group") or _group(source, setting),
        kind=field(name, raw, "kind", _KINDS),
        confidence=field(name, raw, "confidence", CONFIDENCES),
        healthy=None if healthy == "unknown" else healthy,
        citable=field(name, raw, "citable", (True, False)),
        gpus=field(name, raw, "gpus", int),
        link=raw.get("link") or "",
    )


def _group(source: str, setting: str) -> str:
    """Whose machines a record without a group is of: a cloud, a vendor, the people of a repository, or of a thread."""
    for pattern, owner in _OWNERS:
        if re.search(pattern, setting):
            return owner
    thread = re.search(r"github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)", source)
    if thread:
        return f"{thread[1]}#{thread[2]}"
    owner = re.sub(r"^https?://", "", source).split("/")[0]
    return _VENDOR.get(owner.lower(), owner)
