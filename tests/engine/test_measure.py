"""`roofline.measure`, as tests call it: what it takes, refuses, writes down and lets go."""

import itertools
import traceback

import pytest
import torch

from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.samples import SIBLINGS
from pytest_roofline.core.work import Work
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.measure import Observer, measure_request
from pytest_roofline.engine.request import RankOptions, Request, Timed
from pytest_roofline.engine.timing import Plan

from .. import warm

GIB, MIB = 2**30, 2**20


def body(*lines, name="it"):
    """A test of these lines."""
    return f"def test_{name}(roofline, fake):\n" + "".join(f"    {line}\n" for line in lines)


def module(cases):
    """A test of each of these lines, by its name."""
    return "".join(body(*lines, name=name.replace(" ", "_")) for name, lines in cases.items())


MEASURE = "roofline.measure(lambda *_: fake.work(1e-3), work=WORK"
OF_SETS = "make_args=lambda: (next(count),), cache='rotate'"


def run_of(suite, name):
    """The run that was saved under a name."""
    return read_run(suite.pytester.path / f".roofline/runs/{name}.jsonl")


def refused_as_baseline(suite, why, name=None):
    run = suite.saved() if name is None else run_of(suite, name)
    with pytest.raises(BadInput, match=why):
        propose([run], everything=True, accept_slower=True)


# Each holds by itself; the cache has 4000 bytes, so that a rotation takes nine sets.
HOLDS_TRUE = {
    "what stands behind the function are its arguments": (
        "seen = set()",
        "roofline.measure(lambda *a: seen.add(a) or fake.work(1e-3), 1, 2, work=WORK)",
        "assert seen == {(1, 2)}",
    ),
    "verify comes after the last call and that of the peak": (
        "for name, peak in (('a', False), ('b', True)):",
        "    order = []",
        "    roofline.measure(lambda: order.append('call') or fake.work(1e-3), work=WORK, name=name, peak_bytes=peak,",
        "        verify=lambda: order.append('verify'))",
        "    assert order.index('verify') == len(order) - 1",
    ),
    "verify sees every set that was timed": (
        "count, called, verified = iter(range(100)), set(), set()",
        f"roofline.measure(lambda n: called.add(n) or fake.work(1e-3), work=WORK, {OF_SETS},",
        "    verify=lambda n: verified.add(n))",
        "assert called == set(range(18))",
        "assert verified == set(range(9, 18))",
    ),
    "the peak is taken after all timing": (
        "stamps = []",
        "roofline.measure(lambda: stamps.append(fake.stamps) or fake.work(1e-3), work=WORK, peak_bytes=True)",
        "assert stamps[-1] == fake.stamps > stamps[-2]",
    ),
    "the cache of the device is given back after every measurement": (
        "released = []",
        "fake.release = lambda: released.append(1)",
        f"{MEASURE})",
        "with pytest.raises(ZeroDivisionError):",
        "    roofline.measure(lambda: 1 / 0, work=WORK, name='bad')",
        "assert len(released) == 2",
    ),
}


def test_what_measure_promises_holds(suite):
    suite.device("cache_bytes=4000")
    suite.run(module(HOLDS_TRUE)).assert_outcomes(passed=len(HOLDS_TRUE))


def test_what_measure_returns_is_what_the_run_file_holds(suite):
    work = "Work(read_bytes=600, write_bytes=400, payload_bytes=1000, flops=3000)"
    suite.run(
        body(
            f"result = roofline.measure(lambda: fake.work(1e-3), work={work})",
            "print('MEDIAN', result.median_s, len(result.samples.seconds))",
        ),
        "-s",
    )
    (measurement,), (line,) = suite.saved().measurements, suite.lines("measurement")
    assert f"MEDIAN {measurement.median_s} {len(measurement.samples.seconds)}" in "".join(
        suite.result.outlines
    )
    assert sum(measurement.samples.seconds) == pytest.approx(
        len(measurement.samples.seconds) * 1e-3
    )
    assert (measurement.verified, measurement.peak_bytes, measurement.key.timing) == (
        None,
        None,
        "device",
    )
    assert (line["work"]["payload_bytes"], line["samples"]["iterations"] >= 1) == (1000, True)
    derived = {
        name: line["derived"][name]
        for name in ("operational_intensity", "flops_per_s", "traffic_GBps")
    }
    assert derived == pytest.approx(
        {"operational_intensity": 3.0, "flops_per_s": 3e6, "traffic_GBps": 1e-3}
    )
    assert line["derived"]["payload_GBps"] == pytest.approx(1e-3)


def test_names_tell_the_measurements_of_a_test_apart_and_twice_under_one_is_refused(suite):
    source = (
        f"@pytest.mark.parametrize('n', [1, 2])\ndef test_it(roofline, fake, n):\n    {MEASURE})\n"
    )
    suite.run(source + f"    {MEASURE}, name='second')\n").assert_outcomes(passed=2)
    assert [one.label for one in suite.saved().measurements] == [
        "it[1]",
        "it[1].second",
        "it[2]",
        "it[2].second",
    ]
    twice = {"none": (f"{MEASURE})",) * 2, "a": (f"{MEASURE}, name='a')",) * 2}
    result = suite.run(module(twice), "--roofline-save=twice")
    result.assert_outcomes(failed=2)
    for under in ("no name", "the name 'a'"):
        said = f"E *BadInput: this test has two measurements with {under}. Give each a different name, as in *"
        result.stdout.fnmatch_lines([said])


BAD = {
    "async function": ("async def fn(): pass", "fn, work=WORK", "'fn' is async*expected a plain function*"),
    "no function": ("fn = 5", "fn, work=WORK", "the function to time is 5; expected a function, such as lambda: …"),
    "a long value": ("fn = [1] * 1000", "fn, work=WORK", "the function to time is [1, 1, *1…; expected a function, *"),
    "no Work": ("", "fn, work=1e9", "work is 1000000000.0; expected Work(*, or None"),
    "metric without work": ("", "fn, metric='TFLOPS'", "metric is 'TFLOPS', but the work has no amount *: None"),
    "zero work": ("", "fn, work=Work()", "every field of Work is zero; expected at least one of *"),
    "negative work": ("", "fn, work=Work(read_bytes=-1)", "Work.read_bytes is -1; expected zero or more*"),
    "both arguments": ("", "fn, 1, work=WORK, make_args=tuple", "both args and make_args were given; *"),
    "rotation without a maker": ("", "fn, work=WORK, cache='rotate'", "cache='rotate' needs make_args, *"),
    "cache": ("", "fn, work=WORK, cache='hot'", "cache is 'hot'; expected one of warm, rotate, flush"),
    "timing": ("", "fn, work=WORK, timing='cpu'", "timing is 'cpu'; expected one of device, wall"),
    "zero budget": ("", "fn, work=WORK, budget=0", "budget is 0; expected a number above zero"),
    "no number as budget": ("", "fn, work=WORK, budget='1s'", "budget is '1s'; expected a number above zero"),
    "bare bandwidth": ("", "fn, work=WORK, metric='bandwidth'", "metric is 'bandwidth'; expected a name that ends *"),
    "metric without amount": ("", "fn, work=WORK, metric='TFLOPS'", "metric is 'TFLOPS', but the work has no amount *"),
    "name no text": ("", "fn, work=WORK, name=5", "name is 5; expected text*"),
    "verify no function": ("", "fn, work=WORK, verify=True", "verify is True; expected a function *"),
}  # fmt: skip


def test_bad_input_is_refused_in_one_sentence_and_measures_nothing(suite):
    # Should it be taken after all, time goes by at every stamp, and the run ends.
    suite.device(
        body="stamp = DEVICE.stamp\nDEVICE.stamp = lambda: (DEVICE.work(1.0), stamp())[1]\n"
    )
    cases = {
        name: (
            "calls = []",
            "fn = lambda *_: calls.append(1)",
            *(prepare or "pass").split("\n    "),
            "with pytest.raises(ValueError) as caught:",
            f"    roofline.measure({arguments})",
            f"print('SAID {name}:', type(caught.value).__name__, caught.value)",
            "assert not calls",
        )
        for name, (prepare, arguments, _) in BAD.items()
    }
    result = suite.run(module(cases | {"good": (f"{MEASURE})",)}), "-s")
    result.assert_outcomes(passed=len(BAD) + 1)
    for name, (_, _, sentence) in BAD.items():
        result.stdout.fnmatch_lines([f"*SAID {name}: BadInput {sentence.replace('[', '[[]')}"])
    assert [one.test_id.partition("::")[2] for one in suite.saved().measurements] == ["test_good"]


WRONG = {
    "False": "lambda *_: False",
    "tensor": "lambda *_: torch.tensor(False)",
    "assertion": "lambda *_: pytest.fail.__class__ and (_ for _ in ()).throw(AssertionError('byte 7 is 0'))",
}
RIGHT = ("True", "None", "torch.tensor(True)")


def test_wrong_data_fail_their_test_are_marked_and_never_a_baseline_and_right_data_pass(suite):
    swallowed = ("with pytest.raises(AssertionError):", f"    {MEASURE}, verify=lambda *_: False)")
    cases = {name: (f"{MEASURE}, verify={verify})",) for name, verify in WRONG.items()} | {
        "swallowed": swallowed
    }
    cases |= {
        f"right{at}": (f"{MEASURE}, verify=lambda *_: {answer})",)
        for at, answer in enumerate(RIGHT)
    }
    result = suite.run(module(cases))
    result.assert_outcomes(failed=len(WRONG), passed=1 + len(RIGHT))
    for name in WRONG:
        result.stdout.fnmatch_lines([f"E *WrongData: {name}: wrong data in argument set 0*"])
    result.stdout.fnmatch_lines(
        ["E *WrongData: assertion: wrong data in argument set 0: byte 7 is 0"]
    )
    found = [(one.verified, one.invalid[:28]) for one in suite.saved().measurements]
    assert found == [(False, "wrong data in argument set 0")] * 4 + [(True, "")] * len(RIGHT)
    suite.run(module({"swallowed": swallowed}), "--roofline-save=swallowed")
    refused_as_baseline(suite, "wrong data in argument set 0", "swallowed")


def test_what_the_warm_up_left_behind_is_not_what_is_verified(suite):
    # A function that stops working after its warm-up must not hide behind what it did before.
    result = suite.run(
        body(
            "def copy(source, target):",
            "    fake.work(1e-3)",
            "    if fake.works < 20:",
            "        target.copy_(source)",
            "make = lambda: (torch.ones(8), torch.zeros(8))",
            "roofline.measure(copy, work=WORK, make_args=make, verify=torch.equal)",
        )
    )
    result.assert_outcomes(failed=1)


BULK = """
class Check:
    def __init__(self, wrong=None):
        self.wrong, self.spoiled, self.seen, self.made = wrong, [], [], []

    def __call__(self, number):
        return number != self.wrong

    def make(self):
        self.made.append(len(self.made))
        return self.made[-1]

    def spoil(self, sets):
        self.spoiled.append([number for number, in sets])

    def first_wrong(self, sets):
        self.seen.append([number for number, in sets])
        return self.wrong

"""


def test_one_wrong_set_among_many_is_found_also_by_a_verify_for_all_of_them_at_once(suite):
    suite.device("cache_bytes=4000")
    asked = f"{MEASURE}, make_args=check.make, cache='rotate', verify=check)"
    result = suite.run(
        body("count = iter(range(100))", f"{MEASURE}, {OF_SETS}, verify=lambda n: n != 14)")
        + body(f"{MEASURE}, verify=lambda *_: 1 / 0)", name="broken")
        + BULK
        + body(
            "check = Check()",
            asked,
            "assert [check.made] == check.spoiled == check.seen == [[*range(9)]]",
            name="all",
        )
        + body("check = Check(3)", asked, name="wrong")
    )
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines(
        ["E *WrongData: it: wrong data in argument set 5 of 9: verify returned False"]
    )
    result.stdout.fnmatch_lines(
        ["E *WrongData: wrong: wrong data in argument set 3 of 9: verify returned False"]
    )
    found = [(one.verified, one.invalid.partition(":")[0]) for one in suite.saved().measurements]
    assert found[1:3] == [(None, "raised ZeroDivisionError"), (True, "")]
    # It sees only those that were called with.
    suite.device("cache_bytes=10**6")
    seen = ("for (some,) in (check.spoiled, check.seen):", "    assert 0 < len(some) < 2001")
    called = asked.replace("1e-3", "1e-2")
    suite.run(
        BULK + body("check = Check()", called, "assert len(check.made) == 2001", *seen)
    ).assert_outcomes(passed=1)


PROMISES = {
    "later()": "coroutine",
    "Later()": "Later, which works only when awaited",
    "(n for n in range(9))": "a generator, which works only when its values are consumed",
    "torch.futures.Future()": "Future, whose work may not be done yet; *Call .wait() on the Future inside",
    "(1, [torch.futures.Future()])": "Future, whose work may not be done yet; *Call .wait() on the Future inside",
    "POOL.apply_async(len, ((),))": "ApplyResult, whose work may not be done yet; *Call .get() on the ApplyResult",
    "torch.zeros(8, device='meta') + 1": "a tensor on `meta`, which holds no data, so nothing was computed",
}


@pytest.mark.usefixtures("torch_compiler")
def test_a_function_whose_result_is_not_there_yet_is_refused(suite):
    header = "import multiprocessing.pool\nPOOL = multiprocessing.pool.ThreadPool(1)\n"
    cases = {
        f"at{at}": (f"roofline.measure(lambda: {makes}, work=WORK)",)
        for at, makes in enumerate(PROMISES)
    }
    header += "async def later(): pass\nclass Later:\n    def __await__(self): yield\n"
    result = suite.run(header + module(cases))
    result.assert_outcomes(failed=len(PROMISES))
    for said in PROMISES.values():
        result.stdout.fnmatch_lines([f"E *BadInput: the measured function returned {said}*"])


FAILS = (
    "def fn(*_):",
    "    if fake.works - BEFORE >= AFTER:",
    "        raise RuntimeError('out of memory: tried to allocate 2 GiB')",
    "    fake.work(1e-2)",
)


def failing(after, arguments, name="it"):
    """A test of a function that raises after so many calls."""
    lines = (
        f"AFTER, BEFORE = {after}, fake.works",
        *FAILS,
        f"roofline.measure(fn, work=WORK{arguments})",
    )
    return body(*lines, name=name)


def test_blocks_before_an_exception_or_ctrl_c_are_kept_and_marked_and_never_a_baseline(suite):
    result = suite.run(failing(40, ""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: out of memory: tried to allocate 2 GiB"])
    (measurement,) = suite.saved().measurements
    samples = measurement.samples
    calls_in_a_block = samples.blocks[0].samples * samples.iterations
    assert (40 - samples.warmup_iterations) // calls_in_a_block == len(samples.blocks) > 0
    assert measurement.invalid == "raised RuntimeError: out of memory: tried to allocate 2 GiB"
    refused_as_baseline(suite, "out of memory")
    stopped = failing(40, "").replace(
        "RuntimeError('out of memory: tried to allocate 2 GiB')", "KeyboardInterrupt"
    )
    suite.run(stopped, "--roofline-save=stopped", no_reraise_ctrlc=True)
    assert run_of(suite, "stopped").measurements[0].invalid == "interrupted"


HOLDING = """
HELD = []

@pytest.fixture
def before():
    return [reference() for reference in HELD]

def make():
    tensor = torch.zeros(1000)
    HELD.append(weakref.ref(tensor))
    return (tensor,)
"""
# Looked at in the set-up of the next test, and in its body.
NEXT = """
def test_next_{at}(roofline, fake, before):
    for held in (before, [reference() for reference in HELD], [reference() for reference in fake.held]):
        assert set(held) <= {{None}}
    assert HELD or fake.held
    HELD.clear(), fake.held.clear()
"""
FLUSHING = """
import torch
import weakref

DEVICE.held = []

def flusher(size_bytes):
    buffer = torch.zeros(1000)
    DEVICE.held.append(weakref.ref(buffer))
    return lambda: buffer.zero_()

DEVICE.flusher = flusher
"""


def test_tensors_and_the_flushs_buffer_are_released_before_the_next_test_however_a_measurement_ends(
    suite,
):
    suite.device(body=FLUSHING)
    tests = [body(f"{MEASURE}, make_args=make, verify=lambda _: False)", name="wrong")]
    tests += [failing(after, ", make_args=make", name=f"made_{after}") for after in (0, 40)]
    tests += [failing(after, ", cache='flush'", name=f"flushed_{after}") for after in (10, 40)]
    tests += [
        body(
            f"{MEASURE}, cache='flush')",
            "assert {one() for one in fake.held} == {None}",
            name="well",
        )
    ]
    source = HOLDING + "".join(test + NEXT.format(at=at) for at, test in enumerate(tests))
    suite.run(source).assert_outcomes(failed=5, passed=7)


def test_a_device_that_vanishes_is_named_and_what_it_measured_marked(suite):
    # While it is calibrated, warming up, and when some blocks are taken.
    for vanish_after in (0, 240, 460):
        suite.device(f"queue_depth=64, vanish_after={vanish_after}")
        lines = ("def release():", "    raise RuntimeError('no device')", "fake.release = release")
        measure = "roofline.measure(lambda: fake.work(1e-2), work=WORK)"
        result = suite.run(body(*lines, measure), f"--roofline-save=at{vanish_after}")
        result.stdout.fnmatch_lines(
            ["E *DeviceError: fake stopped answering: the device fell off the bus"]
        )
        assert bool(run_of(suite, f"at{vanish_after}").measurements) == (vanish_after == 460)
    run = run_of(suite, "at460")
    assert "raised DeviceError: fake stopped answering" in run.measurements[0].invalid
    assert "fake stopped answering: the device fell off the bus" in run.outcomes[0].reason


def test_timing_and_cache_policy_are_part_of_the_key_and_a_budget_given_to_measure_wins(suite):
    suite.device("cache_bytes=4096")
    suite.run(
        module(
            {
                "device": (f"{MEASURE})",),
                "wall": (f"{MEASURE}, timing='wall')",),
                "flush": (f"{MEASURE}, cache='flush')",),
                "short": (f"{MEASURE}, budget=0.02)",),
            }
        ),
        "--roofline-budget=0.04",
    )
    found = suite.saved().measurements
    assert [(one.key.timing, one.key.cache) for one in found[:3]] == [
        ("device", "warm"), ("wall", "warm"), ("device", "flush"),
    ]  # fmt: skip
    assert (
        found[3].samples.measuring_s
        < 0.025
        < found[0].samples.measuring_s + found[0].samples.warmup_s
    )


# Rotation, and how many sets it takes.


def test_neither_the_hosts_speed_nor_free_memory_decides_the_number_of_sets_or_the_label(suite):
    suite.device("cache_bytes=2000")
    rotated = "roofline.measure(lambda: fake.work(1e-2), make_args={}, work=WORK, cache='rotate')"
    cases = {
        "fast": (rotated.format("lambda: fake.pass_time(0.0)"),),
        "slow": (rotated.format("lambda: fake.pass_time(0.9)"),),
        "just_fits": ("fake.free_bytes = lambda: 10_000", rotated.format("tuple")),
        "long": ("fake.free_bytes = lambda: 2**36", rotated.format("lambda: fake.pass_time(6.0)")),
        "too_full": ("fake.free_bytes = lambda: 9_999", rotated.format("tuple")),
    }
    result = suite.run(module(cases), "-rs")
    result.assert_outcomes(passed=4, skipped=1)
    found = suite.saved().measurements
    assert [(one.samples.argument_sets, one.samples.labels) for one in found] == [(5, ())] * 4
    needs = "needs 10.0 kB of free memory to rotate through 5 sets of arguments, found 10.0 kB"
    result.stdout.fnmatch_lines([f"SKIPPED*{needs}; end other processes*"])
    said = "roofline: long: make_args took 12 s for 2 of the 5 sets of arguments to rotate through. All "
    # It is broken where the terminal ends.
    assert (
        " ".join(result.stdout.str().split()).count(said)
        == result.stdout.str().count("make_args took")
        == 1
    )
    result = suite.run(
        module({"too_full": cases["too_full"]}),
        "--roofline-fail-on=+no-hardware",
        "--roofline-save=full",
    )
    result.assert_outcomes(failed=1)
    told = " ".join(result.stdout.str().split())
    assert (
        f"{needs}; end other processes on the device, or use cache='flush', which needs only one set; "
        "missing hardware fails" in told
    )
    assert "During handling" not in told


# What a copy is labelled and believed: of an H100 with 3350 GB/s and 50 MB of cache.

COPY = """
def copied(roofline, fake, size, cache, share):
    work = Work(read_bytes=size, write_bytes=size, payload_bytes=size)
    seconds = 2 * size / (share * 3350e9)
    roofline.measure(lambda *_: fake.work(seconds), make_args=lambda: (), work=work, cache=cache)
"""


def copies(suite, device, *cases):
    """The copies of so many bytes, by a cache policy, at a share of the datasheet's peak."""
    suite.device(device)
    lines = {f"at{at}": (f"copied(roofline, fake, *{case!r})",) for at, case in enumerate(cases)}
    name = f"copies{next(NUMBERS)}"
    suite.run(COPY + module(lines), f"--roofline-save={name}", "--roofline-budget=0.1")
    return run_of(suite, name)


NUMBERS = itertools.count()
SMALL = "cache_bytes=50 * 2**20, memory_bytes=64 * 2**20"


def test_buffers_that_the_cache_holds_are_labelled(suite):
    for device, cases in {
        # Half of all memory does not hold a rotation.
        SMALL: [(16 * MIB, "rotate", True)],
        # A set is far larger than it.
        "cache_bytes=2**20, memory_bytes=16 * 2**20": [(4 * MIB, "rotate", False)],
        # bandwidth.md: rotated over 4 × the last-level cache, or labelled.
        "": [(16 * MIB, "rotate", False), (16 * MIB, "warm", True), (256 * MIB, "warm", False)],
        "cache_bytes=4096": [(1024, "flush", False)],
    }.items():
        run = copies(suite, device, *((size, cache, 1e-4) for size, cache, _ in cases))
        found = ["cache_resident" in one.samples.labels for one in run.measurements]
        assert found == [resident for *_, resident in cases], device


def test_more_than_the_datasheets_peak_is_invalid_and_never_a_baseline(suite):
    for device, cases in {
        "": [
            (GIB, "rotate", 1.019, True), (GIB, "rotate", 1.03, False), (16 * MIB, "rotate", 2, False),
            # Too small to be bounded, and cache-resident.
            (8 * MIB, "rotate", 2, True), (16 * MIB, "warm", 2, True),
        ],
        SMALL: [(16 * MIB, "rotate", 2, True)],
        "product='Some New GPU'": [(GIB, "rotate", 60, True)],
    }.items():  # fmt: skip
        run = copies(suite, device, *(case[:3] for case in cases))
        why = [one.invalid for one in run.measurements]
        assert ["of the datasheet's peak (3350 GB/s)" not in one for one in why] == [
            case[3] for case in cases
        ], why
        assert [one.verdicts != ("INVALID",) for one in run.outcomes] == [case[3] for case in cases]
    with pytest.raises(BadInput, match="of the datasheet's peak"):
        propose([copies(suite, "", (GIB, "rotate", 1.03))], everything=True, accept_slower=True)


NOTHING = """
import pytest
from pytest_roofline import Work
from pytest_roofline.engine.devices import cpu

# Whoever else uses this machine says nothing of this.
cpu.too_busy = lambda _: ""
WORKS = {
    "traffic": Work(read_bytes=2**30),
    "payload": Work(payload_bytes=2**30),
    "arithmetic": Work(flops=10**9),
    "collective": Work(algbw_bytes=2**30),
}


@pytest.mark.parametrize("name", WORKS)
def test_nothing(roofline, name):
    roofline.measure(lambda: None, work=WORKS[name], budget=0.05)
"""


def test_nothing_on_a_processor_is_invalid_whatever_work_is_claimed(pytester):
    pytester.makepyfile(NOTHING)
    options = ("-pno:benchmark", "--roofline-device=cpu", "--roofline-save=run")
    done = warm.run(["-m", "pytest", *options], cwd=pytester.path)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    run = read_run(pytester.path / ".roofline" / "runs" / "run.jsonl")
    why = {
        one.key.parameters["name"]: one.invalid for one in run.measurements if not one.key.is_canary
    }
    assert set(why) == {"traffic", "payload", "arithmetic", "collective"}
    assert all(
        "check that `work` is right and that the function does this work" in one
        for one in why.values()
    ), why


def test_a_replaced_function_is_what_is_measured_and_labelled_and_never_a_baseline(suite):
    suite.device(
        body="def pytest_roofline_function(item, name, fn):\n    return lambda: (fn(), DEVICE.work(3e-3))\n",
    )
    suite.run(body(f"{MEASURE})"))
    samples = suite.saved().measurements[0].samples
    assert ("replaced" in samples.labels, samples.seconds[0]) == (
        True,
        pytest.approx(4e-3, rel=1e-4),
    )
    refused_as_baseline(suite, "replaced")


HOLDS = "lambda *_: (fake.allocate(3 * 2**20), fake.allocate(2**20), fake.allocate(-3 * 2**20), fake.work(1e-3))"
BOTH = f"roofline.measure({HOLDS}, work=WORK, peak_bytes=True, held_bytes=True"


def test_the_peak_of_a_call_and_what_it_holds_are_above_what_was_before_in_a_call_that_is_not_timed(
    suite,
):
    suite.device("cache_bytes=4000")
    cases = {
        "own": ("fake.allocate(8 * 2**20)", f"{BOTH})"),
        "sets": (f"{BOTH}, cache='rotate', make_args=lambda: fake.allocate(2**20) or ())",),
        "none": (f"{MEASURE}, peak_bytes=True, held_bytes=True)",),
        "unasked": (f"roofline.measure({HOLDS}, work=WORK)",),
        "calls": (
            "before = fake.works",
            f"{MEASURE}, peak_bytes=True)",
            "print('WORKS', fake.works - before)",
        ),
        "untold": ("fake.peak_bytes = fake.held_bytes = lambda call: None", f"{BOTH})"),
    }
    suite.run(module(cases), "-s").assert_outcomes(passed=len(cases))
    found = suite.saved().measurements
    memory = [(one.peak_bytes, one.held_bytes) for one in found[:4] + found[5:]]
    assert memory == [(4 * MIB, MIB), (4 * MIB, MIB), (0, 0), (None, None), (None, None)]
    samples = found[4].samples
    made = samples.warmup_iterations + samples.iterations * len(samples.seconds) + 1
    suite.result.stdout.fnmatch_lines([f"*WORKS {made}"])
    assert suite.lines("measurement")[0]["held_bytes"] == MIB


def test_a_cpu_holds_what_autograd_saves_and_tells_nothing_inside_a_profiler_of_the_users():
    x = torch.ones(MIB // 4, requires_grad=True)
    # The result of exp is what it saves; sin saves its input, which is such a result; the last is the output.
    assert CpuDevice().held_bytes(lambda: x.exp().sin()) == 2 * MIB
    with torch.no_grad():
        assert CpuDevice().held_bytes(lambda: x.exp().sin()) == MIB
    with torch.autograd.profiler.profile():
        assert CpuDevice().held_bytes(lambda: 1 / 0) is None


def test_ranks_and_siblings_ask_nobody_whether_others_are_busy_and_one_device_alone_does():
    copy = Work(payload_bytes=2**20, wire_bytes=2**20)

    def asks(**changes):
        return Request(
            work=copy, metric="pinned_payload_GBps", budget_s=0.1, **changes
        ).over_host_link

    assert (asks(), asks(ranks=RankOptions(2), timing="isolated"), asks(labels=(SIBLINGS,))) == (
        True,
        False,
        False,
    )


def test_the_traceback_of_a_failure_holds_no_plan_and_so_nothing_that_refills_or_flushes():
    calls = []

    def fails(x):
        calls.append(x.numel())
        if len(calls) > 2:
            raise ValueError("on purpose")

    timed = Timed(fails, lambda: (torch.zeros(4),))
    request = Request(work=Work(read_bytes=16), budget_s=0.1, timed=timed, refill=True)
    with pytest.raises(ValueError, match="on purpose") as raised:
        measure_request(FakeDevice(), request, Observer())
    frames = [frame for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    assert "run" in [frame.f_code.co_name for frame in frames]
    held = [
        value for frame in frames for value in frame.f_locals.values() if isinstance(value, Plan)
    ]
    assert [(plan.refill, plan.flush) for plan in held if plan.refill or plan.flush] == []
