"""What a published figure can be at most, by the datasheets; and that no limit that ships is off by a power of ten."""

from pathlib import Path

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.work import RATE_UNITS, rate_suffix

GATING = [
    (path.stem, entry)
    for path in sorted((Path(__file__).parents[2] / "baselines").glob("*.json"))
    if path.stem != "resources"
    for entry in read_baseline(path).entries
    if entry.gates and entry.kind == "threshold"
]
PAIR = {"product": "h200-sxm", "memory": "141gb", "partition": "none", "link": None}


@pytest.fixture(scope="session")
def share(module):
    """What a figure would be of the largest that its datasheet lets be true; None where none says one."""
    peaks = module("peaks")

    def of(entry, family="h200"):
        ceiling = peaks.published_ceiling(entry, family)
        if ceiling is None:
            return None
        return entry.value * RATE_UNITS[rate_suffix(entry.metric)] / ceiling.value / peaks.most_share(ceiling)

    return of


def test_no_limit_that_ships_is_off_by_a_power_of_ten(share):
    found = {f"{family} {entry.label}": share(entry, family) for family, entry in GATING}
    assert found
    assert {name: part for name, part in found.items() if part is None or not 0.1 <= part <= 1} == {}


@pytest.mark.parametrize(
    ("name", "metric", "devices", "most_gbps"),
    [
        ("peer_copy_one_way", "payload_GBps", 2, 1.02 * 450),
        ("peer_copy_both_ways", "bidir_sum_auto_payload_GBps", 2, 1.02 * 900),
        ("all_reduce", "busbw_GBps", 8, 1.02 * 14 / 9 * 450),
        ("all_reduce", "algbw_GBps", 8, 1.02 * 14 / 9 * 450 * 8 / 14),
        # Among two a switch saves nothing.
        ("all_reduce", "busbw_GBps", 2, 1.02 * 450),
        ("all_gather", "busbw_GBps", 8, 1.02 * 450),
        ("all_gather", "algbw_GBps", 8, 1.02 * 450 * 8 / 7),
        ("broadcast", "algbw_GBps", 8, 1.02 * 450),
        ("all_reduce", "wirebw_GBps", 8, 1.02 * 450),
        # Across nodes a network takes part, and of uneven shares nobody knows what crossed it.
        ("all_reduce", "busbw_GBps", 16, None),
        ("all_to_all_v", "busbw_GBps", 8, None),
    ],
)
def test_a_figure_of_an_open_link_is_bounded_by_the_fastest(make, share, name, metric, devices, most_gbps):
    facts = {"benchmark": name, "metric": metric, "hardware": HardwareKey(**PAIR, devices=devices)}
    entry = make.published("reference", value=most_gbps or 1e5, **facts)
    assert share(entry) == (most_gbps and pytest.approx(1, abs=0.001))


def test_a_figure_of_an_open_variant_is_bounded_by_the_fastest_of_its_family(make, share):
    hardware = HardwareKey(None, "80gb", "none", 1, "none")
    entries = [
        make.published("reference", value=value, hardware=hardware, note="SXM4 or PCIe") for value in (2039.0, 2200.0)
    ]
    below, above = (share(entry, "a100") for entry in entries)
    assert below <= 1 < above
