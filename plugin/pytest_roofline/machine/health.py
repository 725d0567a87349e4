"""The health of a device itself: facts below their rating, memory errors, and slowdowns that do not
end.

A fact that the machine does not tell is no finding, but it is not fine either: `unknown_health` names it.
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
_RESET = "drain and reset the GPU (nvidia-smi --gpu-reset -i {}, amd-smi reset --gpureset)"
# Facts about memory that gave errors, each with the observation, its effect, and the remedy.
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
    """Return the causes for which a device is DEGRADED, worst first.

    Findings on the device come first, then differences of the node from the expectation. A power
    limit, a lost link and a memory error count if seen at either end of the run. A PCIe link counts
    by the better of both ends, since it may be narrower while the device idles (manual of
    nvidia-smi). A slowdown counts by the blocks that it spoiled. The software power cap is a normal
    state and never counts.

    Args:
        before: the facts of the device before the run; None where they are unknown.
        after: its facts after the run.
        measurements: of the run.
        differences: of the node from the expectation. Those that a finding on the device tells are left out.
    """
    ends = [gpu for gpu in (before, after) if gpu is not None]
    device_findings = _device_findings(ends, measurements)
    device_facts = {(finding.subject, fact) for fact, finding in device_findings.items()}
    node_findings = [
        _difference_finding(difference)
        for difference in differences
        if (difference.subject, difference.fact) not in device_facts
    ]
    return [*device_findings.values(), *node_findings]


def _device_findings(
    ends: Sequence[Gpu], measurements: Sequence[Measurement]
) -> dict[str, Finding]:
    """Return the findings on a device by fact, worst first.

    Facts that make data wrong come first, then those that slow everything, then those that slow
    copies. `ends` are the facts of the device before and after the run.
    """
    # Without facts of the device, only the measurements name it.
    label, active_causes = _label(measurements), None
    if ends:
        last_end = ends[-1]
        label, active_causes = _named_end(ends).label, last_end.active
    finding_by_fact = {
        "ecc_errors": _errors(ends),
        "remap_failed": _remapping(ends, "remap_failed"),
        "slowdown": persistent_slowdown(label, measurements, active_causes or ()),
        "power_limit_w": _power(ends),
        "links": _links(ends),
        "pcie_generation": _pcie(ends, "pcie_generation"),
        "pcie_width": _pcie(ends, "pcie_width"),
        "remap_pending": _remapping(ends, "remap_pending"),
    }
    return {fact: finding for fact, finding in finding_by_fact.items() if finding is not None}


def _named_end(ends: Sequence[Gpu]) -> Gpu:
    """Return the facts of the device after the run.

    They are those before it, if only they name the product. A device that was lost during the run tells nothing after
    it.
    """
    return next((gpu for gpu in reversed(ends) if gpu.product != "unknown"), ends[-1])


def _label(measurements: Sequence[Measurement]) -> str:
    """Return the label of a device that no library knows.

    It is the product in the keys of its measurements.
    """
    names = sorted({str(measurement.key.hardware.product) for measurement in measurements})
    return f"device ({', '.join(names)})" if names else "device"


def _finding(ends: Sequence[Gpu], observed: str, effect: str, remedy: str) -> Finding:
    """Return a finding that makes the device DEGRADED."""
    return Finding("degraded", _named_end(ends).label, observed, effect, remedy)


def _errors(ends: Sequence[Gpu]) -> Finding | None:
    """Return a finding on uncorrected memory errors, if there are any.

    `ends` are the facts of the device before and after the run.
    """
    counts = [gpu.ecc_errors for gpu in ends if gpu.ecc_errors is not None]
    if not any(counts):
        return None
    error_count = max(counts)
    first_count, last_count = counts[0], counts[-1]
    new_count = last_count - first_count
    growth_text = f", {new_count} of these during the run" if new_count > 0 else ""
    errors_text = f"{error_count} uncorrected ECC error{'s' if error_count > 1 else ''}"
    return _finding(
        ends,
        f"{errors_text} since the driver was loaded{growth_text}, expected none",
        "data in the GPU's memory may be wrong, and a program that reads wrong data is killed",
        f"{_RESET.format(ends[-1].index)}; if the errors come back, run the vendor's diagnostics (dcgmi diag "
        "-r 3) and replace the card",
    )


def _remapping(ends: Sequence[Gpu], fact: str) -> Finding | None:
    """Return a finding on faulty memory that stays, if any.

    `fact` is `remap_failed`, or `remap_pending` if the memory is replaced at the next reset. `ends` are the facts of
    the device before and after the run.
    """
    if not any(getattr(gpu, fact) for gpu in ends):
        return None
    observed, effect, remedy = _REMAPPING[fact]
    return _finding(ends, observed, effect, remedy.format(ends[-1].index))


def _power(ends: Sequence[Gpu]) -> Finding | None:
    """Return a finding on a power limit below the default.

    `ends` are the facts of the device before and after the run.
    """
    limits = [gpu.power_limit_w for gpu in ends if gpu.power_limit_w]
    default_w = next((gpu.power_default_w for gpu in ends if gpu.power_default_w), None)
    if default_w is None or not limits or min(limits) >= default_w:
        return None
    change_text = (
        f" ({limits[0]:g} W before the run, {limits[-1]:g} W after the run)"
        if limits[0] != limits[-1]
        else ""
    )
    return _finding(
        ends,
        f"power limit {min(limits):g} W, default {default_w:g} W{change_text}",
        "clocks fall under load",
        f"nvidia-smi -i {ends[-1].index} -pl {default_w:g}, or rocm-smi --resetpoweroverdrive",
    )


def _links(ends: Sequence[Gpu]) -> Finding | None:
    """Return a finding on NVLinks, if some of them are down.

    A device with no link up at all may be right so: a virtual machine may have it alone, or a card may have no bridge.
    A partition of a device tells nothing of its links. `ends` are the facts of the device before and after the run.
    """
    counts = [gpu.links for gpu in ends if gpu.links is not None and gpu.partition is None]
    rated = _rated_links(_named_end(ends)) if counts else None
    if rated is None or not any(counts) or min(counts) >= rated:
        return None
    change_text = (
        f" ({counts[0]} before the run, {counts[-1]} after the run)"
        if counts[0] != counts[-1]
        else ""
    )
    return _finding(
        ends,
        f"{min(counts)} of {rated} NVLinks up{change_text}",
        "copies and collectives between GPUs are slower",
        f"nvidia-smi nvlink --status -i {ends[-1].index} shows the links that are down; check `dmesg` for Xid 74 "
        "and the fabric manager, then reset the GPUs",
    )


def _rated_links(gpu: Gpu) -> int | None:
    """Return the number of NVLinks that every board of a product connects.

    It is None if the product is unknown, or has no known number. NVML's number is not used, since it counts the links
    of the chip: a PCIe card connects only some of them (an H100 12 of 18: Azure's azurehpc-health-checks, issue 162).
    amdsmi's list is not used, since it has a link for each device, and links that are down on healthy boards
    (amd_smi.cc of ROCm 6.4, and its changelog).
    """
    product = products().get(gpu.product)
    rated = product.peaks.get("nvlinks") if product else None
    return int(rated.value) if rated and rated.bounds else None


def _pcie(ends: Sequence[Gpu], fact: str) -> Finding | None:
    """Return a finding on a slow PCIe link.

    It was below its rating at both ends of the run. `fact` is `pcie_generation` or `pcie_width`. `ends` are the facts
    of the device before and after the run.
    """
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
    effect = "this node differs from the node that the file of --roofline-expect describes"
    observed = f"{observed_text}, expected {difference.expected}"
    return Finding("degraded", difference.subject, observed, effect, difference.remedy)


def unknown_health(gpu: Gpu | None) -> str:
    """Return the facts of a device that could not be checked.

    They make a sentence on the device, which is empty if all are known.
    """
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
    """Return the facts that a device does not tell."""
    # A known product without rated links has none, so it withholds nothing.
    may_have_links = gpu.product not in products() or _rated_links(gpu) is not None
    is_unknown_by_name = {
        "power limit": gpu.power_limit_w is None or gpu.power_default_w is None,
        "PCIe generation": gpu.pcie_generation is None or gpu.pcie_generation_rated is None,
        "PCIe width": gpu.pcie_width is None or gpu.pcie_width_rated is None,
        "links": gpu.links is None and may_have_links,
        "ECC errors": gpu.ecc_errors is None and gpu.ecc is not False,
        "remapped memory": gpu.remap_pending is None and gpu.remap_failed is None,
        "throttling": not gpu.throttle_known,
    }
    return [name for name, is_unknown in is_unknown_by_name.items() if is_unknown]


def _list_text(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    *first_names, last_name = names
    return f"{', '.join(first_names)} and {last_name}" if first_names else last_name


# The blocks that a run needs for a finding: fewer, even if all were slow, may be one short disturbance.
FEWEST_BLOCKS = 5
# Measurements that were slow for most of their time and make a finding, however many others were not slow.
FEWEST_MEASUREMENTS = 3
# The causes of excluded blocks that degrade a device, each with its effect and remedy.
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
        "an external signal limits the card's power; such measurements do not count",
        "check the power supplies and the power budget of the chassis, in the log of the board's controller",
    ),
}


def _shares_text(counts: Counter[str], total: int) -> str:
    """Return the share of blocks that each cause spoiled.

    The largest is first.
    """
    return ", ".join(
        f"{cause} in {count} of {total} blocks ({count / total:.0%})"
        for cause, count in counts.most_common()
        if count
    )


def persistent_slowdown(
    label: str, measurements: Sequence[Measurement], active: Sequence[str] = ()
) -> Finding | None:
    """Return a finding on a slowdown that does not end.

    An example is heat. It is None without one. A slowdown counts if it spoiled most blocks of the run, or most blocks
    of three measurements.

    Args:
        label: of the device.
        measurements: of the run.
        active: the causes that are still active after the run.
    """
    # For each measurement, its blocks by the cause that spoiled them; empty is the cause of a good block.
    block_counts = [
        Counter(block.excluded for block in measurement.samples.blocks)
        for measurement in measurements
    ]
    slow_counts = [sum(counts[cause] for cause in _CAUSES) for counts in block_counts]
    total = sum(counts.total() for counts in block_counts)
    slow_measurement_count = sum(
        slow_count > MOST_EXCLUDED * counts.total()
        for slow_count, counts in zip(slow_counts, block_counts, strict=True)
    )
    is_slow_run = total >= FEWEST_BLOCKS and sum(slow_counts) > MOST_EXCLUDED * total
    if not is_slow_run and slow_measurement_count < FEWEST_MEASUREMENTS:
        return None
    totals = Counter({cause: sum(counts[cause] for counts in block_counts) for cause in _CAUSES})
    main_cause, _ = totals.most_common(1)[0]
    shares = _shares_text(totals, total)
    measurements_text = f", mostly in {slow_measurement_count} of {len(block_counts)} measurements"
    active_text = "; still active after the last test" if main_cause in active else ""
    effect, remedy = _CAUSES[main_cause]
    return Finding("degraded", label, f"{shares}{measurements_text}{active_text}", effect, remedy)
