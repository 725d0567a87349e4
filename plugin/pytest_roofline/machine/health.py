"""The health of a device itself: facts below their rating, memory errors, slowdowns. Only slowdowns
that would not end count.

A fact that nobody tells is no finding, and is never fine either: `unknown_health` names it.
"""

from collections import Counter
from collections.abc import Sequence

from ..core.facts import BRAKE, HARDWARE, THERMAL, Finding, Gpu, Unexpected
from ..core.records import Measurement
from ..core.samples import MOST_EXCLUDED
from ..hardware import products

# Facts of an expectation in the words of a reader.
_WORDS = {
    "power_limit_w": "power limit in W",
    "pcie_generation": "PCIe generation",
    "pcie_width": "PCIe width",
    "ecc": "ECC",
    "links": "links up",
    "memory_bytes": "memory",
    "cpu_model": "processor",
    "usable_cores": "usable cores",
}
_RESET = "drain and reset it (nvidia-smi --gpu-reset -i {}, amd-smi reset --gpureset)"
# By fact of memory that gave errors: the observation, its effect, and the remedy.
_REMAPPING = {
    "remap_failed": (
        "memory that gave errors could not be replaced by spare rows",
        "the faulty memory stays in use, and errors will come back",
        "run the vendor's diagnostics and replace the card: nvidia-smi -q -d ROW_REMAPPER, amd-smi bad-pages",
    ),
    "remap_pending": (
        "memory that gave errors waits to be replaced by spare rows",
        "the memory is replaced at the next reset, and may give errors until then",
        f"{_RESET}, or reboot",
    ),
}


def degradations(
    before: Gpu | None,
    after: Gpu | None,
    measurements: Sequence[Measurement],
    differences: Sequence[Unexpected] = (),
) -> list[Finding]:
    """Return what makes a device DEGRADED, worst first. Its own facts come first, then what a good
    node has and this one lacks.

    A power limit, a lost link and a memory error count if seen at either end of the run. A PCIe link counts by the
    better of both ends: it may be narrowed while the device idles (manual of nvidia-smi), so what was whole once is
    whole. A slowdown counts by the blocks that it spoiled. The software power cap is a normal state and never counts.
    """
    ends = [gpu for gpu in (before, after) if gpu is not None]
    own_findings = _own_findings(ends, measurements)
    own_facts = {(finding.subject, fact) for fact, finding in own_findings.items()}
    node_findings = [
        _difference_finding(difference)
        for difference in differences
        if (difference.subject, difference.fact) not in own_facts
    ]
    return [*own_findings.values(), *node_findings]


def _own_findings(ends: Sequence[Gpu], measurements: Sequence[Measurement]) -> dict[str, Finding]:
    """Return the findings by fact, worst first. First what makes data wrong, then what slows
    everything, then what slows copies.
    """
    label, active = (
        (_named_end(ends).label, ends[-1].active) if ends else (_label(measurements), None)
    )
    by_fact = {
        "ecc_errors": _errors(ends),
        "remap_failed": _remapping(ends, "remap_failed"),
        "slowdown": persistent_slowdown(label, measurements, active or ()),
        "power_limit_w": _power(ends),
        "links": _links(ends),
        "pcie_generation": _pcie(ends, "pcie_generation"),
        "pcie_width": _pcie(ends, "pcie_width"),
        "remap_pending": _remapping(ends, "remap_pending"),
    }
    return {fact: finding for fact, finding in by_fact.items() if finding is not None}


def _named_end(ends: Sequence[Gpu]) -> Gpu:
    """Return the end of the run at which the device knows its name. A device that was lost since
    answers nothing.
    """
    return next((gpu for gpu in reversed(ends) if gpu.product != "unknown"), ends[-1])


def _label(measurements: Sequence[Measurement]) -> str:
    """Return the label of a device that no library knows. It is the product of what was measured on
    it.
    """
    measured = sorted({str(measurement.key.hardware.product) for measurement in measurements})
    return f"device ({', '.join(measured)})" if measured else "device"


def _finding(ends: Sequence[Gpu], observed: str, effect: str, remedy: str) -> Finding:
    return Finding("degraded", _named_end(ends).label, observed, effect, remedy)


def _errors(ends: Sequence[Gpu]) -> Finding | None:
    counts = [gpu.ecc_errors for gpu in ends if gpu.ecc_errors is not None]
    if not any(counts):
        return None
    most = max(counts)
    grew = f", {counts[-1] - counts[0]} of them during the run" if counts[-1] > counts[0] else ""
    return _finding(
        ends,
        f"{most} uncorrected ECC error{'s' * (most > 1)} since the driver was loaded{grew}, expected none",
        "data in its memory may be wrong, and a program that reads it is killed",
        f"{_RESET.format(ends[-1].index)}; if they come back, run the vendor's diagnostics (dcgmi diag "
        "-r 3) and replace "
        "the card",
    )


def _remapping(ends: Sequence[Gpu], fact: str) -> Finding | None:
    if not any(getattr(gpu, fact) for gpu in ends):
        return None
    observed, effect, remedy = _REMAPPING[fact]
    return _finding(ends, observed, effect, remedy.format(ends[-1].index))


def _power(ends: Sequence[Gpu]) -> Finding | None:
    limits = [gpu.power_limit_w for gpu in ends if gpu.power_limit_w]
    default_w = next((gpu.power_default_w for gpu in ends if gpu.power_default_w), None)
    if default_w is None or not limits or min(limits) >= default_w:
        return None
    change_text = (
        f" ({limits[0]:g} W before the run, {limits[-1]:g} W after it)"
        if limits[0] != limits[-1]
        else ""
    )
    return _finding(
        ends,
        f"power limit {min(limits):g} W, shipped with {default_w:g} W{change_text}",
        "clocks fall under load",
        f"nvidia-smi -i {ends[-1].index} -pl {default_w:g}, or rocm-smi --resetpoweroverdrive",
    )


def _links(ends: Sequence[Gpu]) -> Finding | None:
    """Return a finding about links that are down beside others.

    Without any, a device stands alone, and rightly so: one that a virtual machine was given on its own, or a card
    without a bridge. Part of a device has no say in them.
    """
    counts = [gpu.links for gpu in ends if gpu.links is not None and gpu.partition is None]
    rated = _rated_links(_named_end(ends)) if counts else None
    if rated is None or not any(counts) or min(counts) >= rated:
        return None
    change_text = (
        f" ({counts[0]} before the run, {counts[-1]} after it)" if counts[0] != counts[-1] else ""
    )
    return _finding(
        ends,
        f"{min(counts)} of {rated} NVLinks up{change_text}",
        "copies and collectives between GPUs are slower",
        f"nvidia-smi nvlink --status -i {ends[-1].index} shows the links that are down; check `dmesg` for Xid 74 "
        "and the fabric manager, then reset the GPUs",
    )


def _rated_links(gpu: Gpu) -> int | None:
    """Return the NVLinks that every board of this product wires up. None if the product is not
    known to have any.

    NVML is not asked: it counts those of the chip, of which a PCIe card wires some only (an H100 12 of 18: Azure's
    azurehpc-health-checks, issue 162). Nor is amdsmi: its list of links is as long as there are devices, and has links
    down on healthy boards (amd_smi.cc of ROCm 6.4, and its changelog).
    """
    product = products().get(gpu.product)
    rated = product.peaks.get("nvlinks") if product else None
    return int(rated.value) if rated and rated.bounds else None


def _pcie(ends: Sequence[Gpu], fact: str) -> Finding | None:
    readings = [reading for gpu in ends if (reading := getattr(gpu, fact)) is not None]
    ratings = [reading for gpu in ends if (reading := getattr(gpu, f"{fact}_rated")) is not None]
    if not readings or not ratings or max(readings) >= max(ratings):
        return None
    return _finding(
        ends,
        f"{_WORDS[fact]} {max(readings)} of {max(ratings)}",
        "copies between host and device are slower",
        "reseat the card or the riser; check the settings of the slot, and `dmesg` for link errors",
    )


def _difference_finding(difference: Unexpected) -> Finding:
    """Return a difference from the expectation as a finding."""
    fact = _WORDS.get(difference.fact, difference.fact)
    observed_text = (
        f"{difference.observed} × {fact}"
        if difference.subject == "GPUs"
        else f"{fact} {difference.observed}"
    )
    effect = "the node differs from the node of the expectation"
    observed = f"{observed_text}, expected {difference.expected}"
    return Finding("degraded", difference.subject, observed, effect, difference.remedy)


def unknown_health(gpu: Gpu | None) -> str:
    """Return what could not be checked of a device, in a sentence. Empty if everything is known."""
    if gpu is None:
        return (
            "no management library knows this device, so power limit, links, memory errors and "
            "throttling are unknown"
        )
    withheld, rated = _withheld_facts(gpu), _rated_links(gpu)
    texts = [f"{_list_text(withheld)} withheld"] if withheld else []
    if gpu.ecc is False:
        texts.append("ECC is off, so memory errors are not reported")
    if gpu.links and rated is None:
        texts.append(
            f"{gpu.links} link{'s are' if gpu.links > 1 else ' is'} up; the expected number is unknown"
        )
    if gpu.links == 0 and rated:
        texts.append(f"none of {rated} links is up, which is correct only for a single GPU")
    return "; ".join(texts)


def _withheld_facts(gpu: Gpu) -> list[str]:
    # A product that is known, and is rated for no links, has none to tell of.
    may_have_links = gpu.product not in products() or _rated_links(gpu) is not None
    unknown_facts = {
        "power limit": gpu.power_limit_w is None or gpu.power_default_w is None,
        "PCIe generation": gpu.pcie_generation is None or gpu.pcie_generation_rated is None,
        "PCIe width": gpu.pcie_width is None or gpu.pcie_width_rated is None,
        "links": gpu.links is None and may_have_links,
        "ECC errors": gpu.ecc_errors is None and gpu.ecc is not False,
        "remapped memory": gpu.remap_pending is None and gpu.remap_failed is None,
        "throttling": not gpu.throttle_known,
    }
    return [name for name, unknown in unknown_facts.items() if unknown]


def _list_text(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# As many as the engine wants before it knows a median: fewer, all slowed, may be one hiccup.
FEWEST_BLOCKS = 5
# So many measurements, each slowed for most of its time, are no accident, however many others were not.
FEWEST_MEASUREMENTS = 3
_CAUSES = {
    THERMAL: (
        "clocks fall under load; such measurements do not count",
        "check airflow, inlet temperature and the fit of the cooler: nvidia-smi -q -d TEMPERATURE,PERFORMANCE, "
        "amd-smi metric --temperature",
    ),
    HARDWARE: (
        "the card halves its clocks to protect itself; such measurements do not count",
        "check temperature, power cables and power supply: nvidia-smi -q -d PERFORMANCE",
    ),
    BRAKE: (
        "an external signal limits its power; such measurements do not count",
        "check the power supplies and the power budget of the chassis, in the log of the board's controller",
    ),
}


def persistent_slowdown(
    label: str, measurements: Sequence[Measurement], active: Sequence[str] = ()
) -> Finding | None:
    """Return the slowdown that spoiled most of a run's blocks. Or most blocks of three
    measurements; None without one.
    """
    block_counts = [
        Counter(block.excluded for block in measurement.samples.blocks)
        for measurement in measurements
    ]
    slow_blocks = [sum(counts[cause] for cause in _CAUSES) for counts in block_counts]
    total = sum(counts.total() for counts in block_counts)
    mostly = sum(
        blocks > MOST_EXCLUDED * counts.total()
        for blocks, counts in zip(slow_blocks, block_counts, strict=True)
    )
    throughout = total >= FEWEST_BLOCKS and sum(slow_blocks) > MOST_EXCLUDED * total
    if not throughout and mostly < FEWEST_MEASUREMENTS:
        return None
    by_cause = Counter({cause: sum(counts[cause] for counts in block_counts) for cause in _CAUSES})
    causes = [(cause, blocks) for cause, blocks in by_cause.most_common() if blocks]
    shares = ", ".join(
        f"{cause} in {blocks} of {total} blocks ({blocks / total:.0%})" for cause, blocks in causes
    )
    where = f", mostly in {mostly} of {len(block_counts)} measurements"
    still = "; still active after the last test" if causes[0][0] in active else ""
    effect, remedy = _CAUSES[causes[0][0]]
    return Finding("degraded", label, f"{shares}{where}{still}", effect, remedy)
