"""What the self test finds on a device that is sound, and on devices each broken in one way."""

import itertools
import math
import re
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.devices import Traits, cpu
from pytest_roofline.engine.devices.base import BRAKE, HARDWARE, POWER_CAP, THERMAL
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.machine.selftest import selftest

MIB = 2**20
BYTES_PER_S = 3e12
PRODUCT_S = 1.5e-3
RATED = 1.1 * BYTES_PER_S
HOST = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6, "pair_s": 1e-6}

STAMPS = "an empty pair of stamps is short, and the clock fine"
AHEAD = "the host gets ahead of a spinning device"
SPIN = "twice the cycles spin twice as long"
COPY = "a copy of twice the bytes takes twice the time"
PEAK = "a copy stays below the memory's datasheet"
FLUSH = "a flush evicts the cache"
GRAPH = "a graph's replay agrees with events"
RUNS = "two runs of the same agree"
LOAD = "0 s of bf16 matrix products give valid results"
CLOCK = "the device's clock agrees with the host's"
ALL = [STAMPS, CLOCK, AHEAD, SPIN, COPY, PEAK, FLUSH, GRAPH, RUNS, LOAD]


class FakeWorkloads:
    """Copies at a scripted rate, more than three times as fast from the cache, and a product that may heat the device.

    Args:
        device: that they run on.
        seconds: of a copy, by the size of its buffer.
        buffers: the factor on the time of each copy that is asked for, in turn.
        product_s: of a matrix product; None is a device without.
        heat: called whenever a product is submitted.
    """

    def __init__(
        self,
        device,
        seconds=lambda size_bytes: 2 * size_bytes / BYTES_PER_S,
        buffers=(1.0,),
        product_s=PRODUCT_S,
        heat=lambda: None,
    ):
        self.device, self.seconds, self.product_s, self.heat = device, seconds, product_s, heat
        self._buffers = enumerate(itertools.cycle(buffers))

    def copy(self, size_bytes):
        """Touches a pair of buffers of its own, and writes one of them."""
        number, factor = next(self._buffers)
        time_s = factor * self.seconds(size_bytes)
        return lambda: self.device.work(
            time_s, touch=number, size_bytes=2 * size_bytes, cached=0.3, written_bytes=size_bytes
        )

    def read(self, size_bytes):
        """Touches a buffer of its own, in half the time of its copy."""
        number, factor = next(self._buffers)
        time_s = factor * self.seconds(size_bytes) / 2
        return lambda: self.device.work(time_s, touch=number, size_bytes=size_bytes, cached=0.3)

    def matmul(self):
        """A product of one duration."""
        return None if self.product_s is None else self._product

    def _product(self):
        self.heat()
        self.device.work(self.product_s)


def sound(kind=FakeDevice, **changes):
    """A device with nothing wrong, or with what is given; its cache is large, so that few samples fill a budget."""
    return kind(**({"cache_bytes": 256 * MIB} | HOST | changes))


def undersold(factor):
    """A device of an unknown architecture whose cache is so many times as large as it reports."""
    return sound(cache_bytes=256 * MIB, reported_cache_bytes=256 * MIB // factor)


def prove(device, limits=RATED, load_s=0.0, **workloads):
    """Every property by its name."""
    found = selftest(device, FakeWorkloads(device, **workloads), limits, load_s=load_s)
    return {property_.name: property_ for property_ in found}


def outcomes(properties, outcome):
    """The names of the properties with this outcome."""
    return {name for name, found in properties.items() if found.outcome == outcome}


def failing(*arguments, **keywords):
    """The names of the properties that fail."""
    return outcomes(prove(*arguments, **keywords), "FAILS")


@pytest.fixture(scope="module")
def proven():
    """The properties of a sound device."""
    return prove(sound())


class RestlessDevice(FakeDevice):
    """Its spin ends at once."""

    def spin(self, cycles):
        """Nothing."""


class HastyDevice(FakeDevice):
    """Claims to have reached every stamp."""

    def reached(self, stamp):
        """Always."""
        return True


class StuckDevice(FakeDevice):
    """Never tells that it has reached a stamp."""

    def reached(self, stamp):
        """Never."""
        return False


class TiringDevice(FakeDevice):
    """Spins half as long again once a spin is long."""

    def spin(self, cycles):
        """Not in proportion."""
        super().spin(cycles if cycles < 15e6 else cycles + cycles // 2)


class DoublingDevice(FakeDevice):
    """Its graphs run everything twice."""

    def capture(self, submit):
        """A replay of twice the work."""
        return super().capture(lambda: (submit(), submit()))


class RefusingDevice(FakeDevice):
    """Its graphs take nothing."""

    def capture(self, submit):
        """Not permitted."""
        raise RuntimeError("operation not permitted when stream is capturing")


class EmptyDevice(FakeDevice):
    """Its graphs leave out what they were given."""

    def capture(self, submit):
        """A replay of nothing."""
        return super().capture(lambda: None)


def test_every_property_holds_on_a_sound_device(proven):
    assert dict.fromkeys(ALL, "holds") == {name: found.outcome for name, found in proven.items()}


def test_the_properties_come_in_one_order(proven):
    assert ALL == list(proven)


@settings(max_examples=10, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    st.fixed_dictionaries(
        {
            "tick_s": st.sampled_from([1e-9, 0.5e-6, 1e-6]),
            "launch_s": st.floats(0.0, 20e-6),
            "record_s": st.floats(0.0, 3e-6),
            "pair_s": st.floats(0.0, 2e-6),
            "latency_s": st.floats(0.0, 10e-6),
            "queue_depth": st.sampled_from([256, 1000, 4096]),
        }
    )
)
def test_no_property_fails_for_what_launches_and_stamps_cost(facts):
    assert failing(sound(**facts)) == set()


def test_a_device_broken_in_one_way_fails_that_property_alone():
    for device, limits, workloads, name in [
        (lambda: sound(StuckDevice), RATED, {}, AHEAD),
        (lambda: sound(TiringDevice), RATED, {}, SPIN),
        (sound, RATED, {"seconds": lambda size_bytes: 1e-3}, COPY),
        (sound, BYTES_PER_S / 1.04, {}, PEAK),
        (lambda: undersold(3), RATED, {}, FLUSH),
        (lambda: sound(DoublingDevice), RATED, {}, GRAPH),
        (lambda: sound(RefusingDevice), RATED, {}, GRAPH),
        (lambda: sound(EmptyDevice), RATED, {}, GRAPH),
        (sound, RATED, {"buffers": (1.0, 1.1)}, RUNS),
    ]:
        assert {name} == failing(device(), limits, **workloads), (device, limits, workloads, name)


# What healthy cards do: an idle H100 at 345 of 1980 MHz whose clock rises while it works; an L2 of 50 MiB that keeps
# what was written last; launches a microsecond apart, which the nodes of a graph are not; a first replay that uploads.
HEALTHY = {
    "clock_ramp_s": 0.1,
    "dirty_share": 1.0,
    "launch_gap_s": 1e-6,
    "graph_upload_s": 0.8e-6,
    "cache_bytes": 50 * MIB,
    "tick_s": 0.5e-6,
}


def test_a_card_whose_clock_rises_from_idle_spins_in_proportion():
    for ramp_s in [0.01, 0.02, 0.3]:
        assert failing(sound(clock_ramp_s=ramp_s)) == set(), ramp_s


def test_a_write_back_cache_that_keeps_what_a_copy_wrote_does_not_fail_the_flush():
    for cache_bytes, share in itertools.product([40 * MIB, 50 * MIB, 256 * MIB], [0.6, 1.0]):
        assert failing(sound(dirty_share=share, cache_bytes=cache_bytes)) == set(), (cache_bytes, share)


def test_what_a_graph_saves_between_launches_does_not_fail_it():
    for gap_s in [0.5e-6, 1e-6, 3e-6]:
        assert failing(sound(launch_gap_s=gap_s, cache_bytes=50 * MIB)) == set(), gap_s


def test_a_healthy_card_that_does_all_of_it_can_be_trusted():
    assert failing(sound(**HEALTHY)) == set()


def test_a_capture_that_is_refused_is_told_with_the_devices_own_words():
    found = prove(sound(RefusingDevice))[GRAPH]
    assert found.observed == "timed by events: operation not permitted when stream is capturing"


def test_a_replay_without_its_work_is_told_with_both_times():
    assert re.fullmatch(
        r"timed by events: a replay takes \S+ \S+, its calls \S+ \S+", prove(sound(EmptyDevice))[GRAPH].observed
    )


def test_a_cpu_whose_cores_others_keep_busy_cannot_be_trusted(monkeypatch):
    device = sound()
    device._facts = replace(device.facts(), type="cpu")
    monkeypatch.setattr(cpu.Neighbours, "cores_taken", lambda self: 1.6)
    monkeypatch.setattr(cpu.host, "usable_cores", lambda: 2)
    properties = prove(device)
    assert {COPY, RUNS} <= outcomes(properties, "FAILS")
    assert properties[COPY].observed == (
        "other processes kept 1.6 of 2 cores busy while it was timed; run it on a quiet machine"
    )


def test_stamps_that_cost_more_than_a_short_kernel_fail():
    assert STAMPS in failing(sound(pair_s=2e-4))


def test_a_clock_coarser_than_its_traits_promise_fails():
    promised = Traits(tick_s=1e-6, shortest_span_s=2e-4, spins=True, graphs=True)
    assert STAMPS in failing(sound(pair_s=5e-5, tick_s=3e-5, traits=promised))


def test_a_device_that_claims_to_have_reached_every_stamp_is_not_ahead():
    assert AHEAD in failing(sound(HastyDevice))


def test_a_spin_that_ends_at_once_fails_both_properties_of_spinning():
    assert {AHEAD, SPIN} <= failing(sound(RestlessDevice))


def test_a_datasheet_is_believed_to_two_percent():
    for share, outcome in [(1.01, "holds"), (1.03, "FAILS")]:
        assert outcome == prove(sound(), BYTES_PER_S / share)[PEAK].outcome, (share, outcome)


def test_a_cache_that_its_class_is_known_for_is_evicted_whatever_is_reported():
    for architecture in ["gfx942", "gfx942:sramecc+:xnack-", "gfx950"]:
        device = sound(reported_cache_bytes=4 * MIB, architecture=architecture)
        assert prove(device)[FLUSH].outcome == "holds", architecture


def test_a_cache_many_times_larger_than_reported_is_found_without_a_datasheet():
    for factor in [3, 6, 64]:
        assert {COPY, PEAK, FLUSH} & failing(undersold(factor), None), factor


@pytest.mark.parametrize("cause", [THERMAL, HARDWARE, BRAKE])
def test_a_device_that_throttles_under_load_fails_under_load_alone(cause):
    active = set()
    device = sound(throttle=lambda _: frozenset(active))
    assert {LOAD} == failing(device, heat=lambda: active.add(cause))


def test_the_cause_of_invalid_results_under_load_is_told():
    active = set()
    device = sound(throttle=lambda _: frozenset(active))
    assert THERMAL in prove(device, heat=lambda: active.add(THERMAL))[LOAD].observed


def test_the_power_cap_alone_fails_nothing_and_is_told():
    active = set()
    properties = prove(sound(throttle=lambda _: frozenset(active)), heat=lambda: active.add(POWER_CAP))
    assert outcomes(properties, "FAILS") == set()
    assert properties[LOAD].figures["power_capped_share"] == 1.0


def test_a_device_that_does_not_tell_its_state_gives_no_share_of_the_power_cap():
    properties = prove(sound(throttle=None))
    assert properties[LOAD].outcome == "holds"
    assert "power_capped_share" not in properties[LOAD].figures


def test_a_neighbour_at_work_makes_results_under_load_invalid():
    assert LOAD in failing(sound(others_busy=0.5))


@pytest.mark.parametrize("load_s", [0.0, 3.0, 10.0])
def test_the_load_lasts_as_long_as_asked(load_s):
    device, submitted_s = sound(), []
    properties = prove(device, load_s=load_s, heat=lambda: submitted_s.append(device.clock_s))
    assert submitted_s[-1] - submitted_s[0] >= load_s - 2 * PRODUCT_S
    assert list(properties)[-1] == f"{load_s:g} s of bf16 matrix products give valid results"


def test_the_whole_of_it_takes_less_than_a_minute():
    for facts in [{}, {"launch_s": 5e-5, "record_s": 1e-5}, {"queue_depth": 128}]:
        device = sound(**facts)
        for _ in selftest(device, FakeWorkloads(device), None):
            pass
        assert device.host_s() < 60, facts


WITHOUT = {
    "graphs": ({"graphs": False}, {}, RATED, {GRAPH}),
    "a spin": ({"spins": False}, {}, RATED, {AHEAD, SPIN, GRAPH}),
    "a datasheet": ({}, {}, None, {PEAK}),
    "a power cap that matters": ({}, {"product_s": None}, RATED, {LOAD}),
}


def test_what_a_device_lacks_does_not_apply_and_the_rest_holds():
    for lacking in WITHOUT:
        traits, workloads, limits, names = WITHOUT[lacking]
        device = sound()
        device.traits = replace(device.traits, **traits)
        properties = prove(device, limits, **workloads)
        assert (names, set()) == (outcomes(properties, "does not apply"), outcomes(properties, "FAILS")), lacking


def test_a_property_that_does_not_apply_says_why():
    for lacking in WITHOUT:
        traits, workloads, limits, names = WITHOUT[lacking]
        device = sound()
        device.traits = replace(device.traits, **traits)
        properties = prove(device, limits, **workloads)
        assert all(properties[name].observed for name in names), lacking


FIGURES = {
    STAMPS: {"event_pair_s", "tick_s", "record_host_s", "queue_depth"},
    SPIN: {"spin_hz", "off"},
    COPY: {"size_bytes", "off"},
    PEAK: {"share"},
    FLUSH: {"cold_bytes_per_s", "warm_bytes_per_s", "memory_bytes_per_s"},
    GRAPH: {"off"},
    RUNS: {"off"},
    LOAD: {"measurements", "first_s", "last_s", "power_capped_share"},
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_behind_a_property_are_kept(proven, name):
    assert FIGURES[name] <= set(proven[name].figures)


def test_every_figure_is_a_finite_number(proven):
    figures = [value for found in proven.values() for value in found.figures.values()]
    assert all(isinstance(value, float) and math.isfinite(value) for value in figures)


@pytest.mark.parametrize(
    ("name", "figure", "truth"),
    [
        (STAMPS, "event_pair_s", 1e-6),
        (SPIN, "spin_hz", 2e9),
        (PEAK, "share", 1 / 1.1),
        (FLUSH, "memory_bytes_per_s", BYTES_PER_S),
        (FLUSH, "cold_bytes_per_s", BYTES_PER_S),
        (FLUSH, "warm_bytes_per_s", BYTES_PER_S / 0.3),
        (LOAD, "last_s", PRODUCT_S),
    ],
)
def test_a_figure_is_the_device_s_own(proven, name, figure, truth):
    assert proven[name].figures[figure] == pytest.approx(truth, rel=0.03)


def test_what_was_seen_and_what_must_be_are_told_of_every_property(proven):
    assert all(found.observed and found.expected for found in proven.values())


def test_a_property_is_told_before_the_next_is_tried():
    device = sound()
    found = selftest(device, FakeWorkloads(device), None)
    assert (STAMPS, 0) == (next(found).name, device.works)


def test_a_device_that_stops_answering_is_named():
    for stamps in [0, 30, 120, 5000]:
        with pytest.raises(DeviceError, match="fake stopped answering"):
            prove(sound(vanish_after=stamps), load_s=10.0)
