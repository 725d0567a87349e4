"""What the self test finds on a device that is sound, and on devices each broken in one way."""

import itertools
import math
import re
from dataclasses import replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL
from pytest_roofline.engine.devices import Traits, cpu
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.machine.selftest import selftest

MIB = 2**20
BYTES_PER_S = 3e12
PRODUCT_S = 1.5e-3
RATED = 1.1 * BYTES_PER_S
HOST = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6, "pair_s": 1e-6}

STAMPS = "an empty pair of time stamps is short, and the clock has a fine tick"
AHEAD = "the host submits ahead of a spinning device"
SPIN = "a spin of twice the cycles takes twice the time"
COPY = "a copy of twice the bytes takes twice the time"
PEAK = "a copy stays below the memory's datasheet"
FLUSH = "a flush evicts the cache"
GRAPH = "a graph's replay agrees with events"
ALONE = "other processes leave the cores idle"
RUNS = "two measurements of the same work agree"
LOAD = "0 s of bf16 matrix products give valid results"
CLOCK = "the device's clock agrees with the host's"
ALL = [STAMPS, CLOCK, AHEAD, SPIN, COPY, PEAK, FLUSH, GRAPH, RUNS, LOAD]


class FakeWorkloads:
    """Copies at a scripted rate, three times as fast from the cache, and a product that may heat the device.

    `buffers` has the factor on the time of each copy that is asked for, in turn; without `product_s` there is none.
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
        number, factor = next(self._buffers)
        time_s, facts = (
            factor * self.seconds(size_bytes),
            {"size_bytes": 2 * size_bytes, "written_bytes": size_bytes},
        )
        return lambda: self.device.work(time_s, touch=number, cached=0.3, **facts)

    def read(self, size_bytes):
        number, factor = next(self._buffers)
        time_s = factor * self.seconds(size_bytes) / 2
        return lambda: self.device.work(time_s, touch=number, size_bytes=size_bytes, cached=0.3)

    def matmul(self):
        return (
            None
            if self.product_s is None
            else lambda: (self.heat(), self.device.work(self.product_s))
        )


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


class RestlessDevice(FakeDevice):
    """Its spin ends at once."""

    def spin(self, cycles):
        pass


class HastyDevice(FakeDevice):
    """Claims to have reached every stamp."""

    def reached(self, stamp):
        return True


class StuckDevice(FakeDevice):
    """Never tells that it has reached a stamp."""

    def reached(self, stamp):
        return False


class TiringDevice(FakeDevice):
    """Spins half as long again once a spin is long."""

    def spin(self, cycles):
        super().spin(cycles if cycles < 15e6 else cycles + cycles // 2)


class DoublingDevice(FakeDevice):
    """Its graphs run everything twice."""

    def capture(self, submit):
        return super().capture(lambda: (submit(), submit()))


class OtherEngineDevice(FakeDevice):
    """Copies in its graphs are done by an engine that takes half as long again."""

    def work(self, seconds, *arguments, written_bytes=0, **named):
        slower = 1.5 if written_bytes and self._recording is not None else 1.0
        super().work(slower * seconds, *arguments, written_bytes=written_bytes, **named)


class RefusingDevice(FakeDevice):
    """Its graphs take nothing."""

    def capture(self, submit):
        raise RuntimeError("operation not permitted when stream is capturing")


class EmptyDevice(FakeDevice):
    """Its graphs leave out what they were given."""

    def capture(self, submit):
        return super().capture(lambda: None)


FIGURES = {
    STAMPS: {"event_pair_s": 1e-6, "tick_s": None, "record_host_s": None, "queue_depth": None},
    SPIN: {"spin_hz": 2e9, "off": None},
    COPY: {"size_bytes": None, "off": None},
    PEAK: {"share": 1 / 1.1},
    FLUSH: {
        "cold_bytes_per_s": BYTES_PER_S, "warm_bytes_per_s": BYTES_PER_S / 0.3, "memory_bytes_per_s": BYTES_PER_S,
    },
    GRAPH: {"off": None},
    RUNS: {"off": None},
    LOAD: {"measurements": None, "first_s": None, "last_s": PRODUCT_S, "power_capped_share": None},
}  # fmt: skip


def test_every_property_holds_on_a_sound_device_with_the_figures_behind_it():
    proven = prove(sound())
    assert {name: found.outcome for name, found in proven.items()} == dict.fromkeys(ALL, "holds")
    assert list(proven) == ALL
    assert all(found.observed and found.expected for found in proven.values())
    for name, figures in FIGURES.items():
        for figure, truth in figures.items():
            value = proven[name].figures[figure]
            assert isinstance(value, float)
            assert math.isfinite(value), (name, figure)
            assert truth is None or value == pytest.approx(truth, rel=0.03), (name, figure)


# What healthy cards do: an idle H100 at 345 of 1980 MHz whose clock rises while it works; an L2 of 50 MiB that keeps
# what was written last; launches a microsecond apart, which the nodes of a graph are not; a first replay that uploads.
HEALTHY = {
    "clock_ramp_s": 0.1, "dirty_share": 1.0, "launch_gap_s": 1e-6, "graph_upload_s": 0.8e-6, "cache_bytes": 50 * MIB,
    "tick_s": 0.5e-6,
}  # fmt: skip


@settings(max_examples=8, phases=(Phase.explicit, Phase.reuse, Phase.generate))
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
@example(HEALTHY)
@example({"clock_ramp_s": 0.3})
@example({"dirty_share": 0.6, "cache_bytes": 40 * MIB})
@example({"launch_gap_s": 3e-6, "cache_bytes": 50 * MIB})
def test_no_property_fails_for_what_launches_stamps_and_healthy_cards_cost(facts):
    assert failing(sound(**facts)) == set()


def test_copies_that_a_graph_gives_to_another_engine_are_no_fault_of_a_device():
    assert failing(sound(OtherEngineDevice)) == set()


def test_a_device_broken_in_one_way_fails_that_property_alone():
    for device, limits, workloads, name in [
        (lambda: sound(StuckDevice), RATED, {}, AHEAD),
        (lambda: sound(TiringDevice), RATED, {}, SPIN),
        (sound, RATED, {"seconds": lambda size_bytes: 1e-3}, COPY),
        # A datasheet is believed to two percent.
        (sound, BYTES_PER_S / 1.03, {}, PEAK),
        (lambda: undersold(3), RATED, {}, FLUSH),
        (lambda: sound(DoublingDevice), RATED, {}, GRAPH),
        (lambda: sound(RefusingDevice), RATED, {}, GRAPH),
        (lambda: sound(EmptyDevice), RATED, {}, GRAPH),
        (sound, RATED, {"buffers": (1.0, 1.1)}, RUNS),
    ]:
        assert failing(device(), limits, **workloads) == {name}, name
    assert prove(sound(), BYTES_PER_S / 1.01)[PEAK].outcome == "holds"
    promised = Traits(tick_s=1e-6, shortest_span_s=2e-4, spins=True, graphs=True)
    for device, names in [
        (sound(pair_s=2e-4), {STAMPS}),
        (sound(pair_s=5e-5, tick_s=3e-5, traits=promised), {STAMPS}),
        (sound(HastyDevice), {AHEAD}),
        (sound(RestlessDevice), {AHEAD, SPIN}),
        (sound(others_busy=0.5), {LOAD}),
    ]:
        assert names <= failing(device), names
    # A graph that is refused is told with the device's own words, or with both times.
    assert prove(sound(RefusingDevice))[GRAPH].observed == (
        "timed by events: operation not permitted when stream is capturing"
    )
    said = (
        r"timed by events: a replay takes \S+ \S+, but the same calls without a graph take \S+ \S+"
    )
    assert re.fullmatch(said, prove(sound(EmptyDevice))[GRAPH].observed)
    # As where every launch waits for its end.
    assert prove(sound(HastyDevice))[GRAPH].observed == (
        "timed by events: the host never submits ahead of the device"
    )
    # A cache many times larger than reported is found without a datasheet, unless its class is known for it.
    for factor in [3, 64]:
        assert {COPY, PEAK, FLUSH} & failing(undersold(factor), None), factor
    assert (
        prove(sound(reported_cache_bytes=4 * MIB, architecture="gfx942:sramecc+"))[FLUSH].outcome
        == "holds"
    )


def test_a_cpu_whose_cores_others_keep_busy_cannot_be_trusted(monkeypatch):
    device = sound()
    device._facts = replace(device.facts(), type="cpu")
    monkeypatch.setattr(cpu.Neighbours, "cores_taken", lambda self: 1.6)
    monkeypatch.setattr(cpu.host, "usable_cores", lambda: 2)
    properties = prove(device)
    assert {COPY, RUNS, ALONE} <= outcomes(properties, "FAILS")
    assert "other processes keep 1.6 of 2 cores busy" in properties[ALONE].observed
    said = "other processes kept 1.6 of 2 cores busy during the measurement; run the test on a quiet machine"
    assert properties[COPY].observed == said


def test_under_load_a_slowdown_fails_with_its_cause_and_the_power_cap_is_only_told():
    for cause in [THERMAL, HARDWARE, BRAKE, POWER_CAP]:
        active = set()
        device = sound(throttle=lambda _, active=active: frozenset(active))
        properties = prove(device, heat=lambda active=active, cause=cause: active.add(cause))
        assert outcomes(properties, "FAILS") == (set() if cause == POWER_CAP else {LOAD}), cause
        assert cause == POWER_CAP or cause in properties[LOAD].observed
    assert properties[LOAD].figures["power_capped_share"] == 1.0
    untold = prove(sound(throttle=None))[LOAD]
    assert (untold.outcome, "power_capped_share" in untold.figures) == ("holds", False)


def test_the_load_lasts_as_long_as_asked_and_the_whole_of_it_less_than_a_minute():
    for load_s in [0.0, 3.0, 10.0]:
        device, submitted_s = sound(), []
        properties = prove(
            device, load_s=load_s, heat=lambda s=submitted_s, d=device: s.append(d.clock_s)
        )
        assert submitted_s[-1] - submitted_s[0] >= load_s - 2 * PRODUCT_S
        assert list(properties)[-1] == f"{load_s:g} s of bf16 matrix products give valid results"
    for facts in [{}, {"launch_s": 5e-5, "record_s": 1e-5}, {"queue_depth": 128}]:
        device = sound(**facts)
        found = selftest(device, FakeWorkloads(device), None)
        # A property is told before the next is tried.
        assert (next(found).name, device.works, len([*found])) == (STAMPS, 0, len(ALL) - 1)
        assert device.host_s() < 60, facts


def test_what_a_device_lacks_does_not_apply_and_says_why_and_the_rest_holds():
    for traits, workloads, limits, names in [
        ({"graphs": False}, {}, RATED, {GRAPH}),
        ({"spins": False}, {}, RATED, {AHEAD, SPIN, GRAPH}),
        ({}, {}, None, {PEAK}),
        ({}, {"product_s": None}, RATED, {LOAD}),
    ]:
        device = sound()
        device.traits = replace(device.traits, **traits)
        properties = prove(device, limits, **workloads)
        assert (outcomes(properties, "does not apply"), outcomes(properties, "FAILS")) == (
            names,
            set(),
        ), names
        assert all(properties[name].observed for name in names), names


def test_a_device_that_stops_answering_is_named():
    for stamps in [0, 30, 120, 5000]:
        with pytest.raises(DeviceError, match="fake stopped answering"):
            prove(sound(vanish_after=stamps), load_s=10.0)
