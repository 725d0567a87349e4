"""`roofline.measure`, as tests call it: what it takes, refuses, writes down and lets go."""

import pytest

from pytest_roofline.baselines.proposals import propose
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.errors import BadInput

GIB, MIB = 2**30, 2**20


def body(*lines, name="it"):
    """A test of these lines."""
    return f"def test_{name}(roofline, fake):\n" + "".join(f"    {line}\n" for line in lines)


def module(cases):
    """A test of each of these lines, by its name."""
    return "".join(body(*lines, name=name.replace(" ", "_")) for name, lines in cases.items())


MEASURE = "roofline.measure(lambda *_: fake.work(1e-3), work=WORK"
OF_SETS = "make_args=lambda: (next(count),), cache='rotate'"


def refused_as_baseline(suite, why):
    with pytest.raises(BadInput, match=why):
        propose([suite.saved()], everything=True, accept_slower=True)


# Each holds by itself; the cache has 4000 bytes, so that a rotation takes nine sets.
HOLDS_TRUE = {
    "arguments are given": (
        "seen = set()",
        "roofline.measure(lambda *a: seen.add(a) or fake.work(1e-3), work=WORK, args=(1, 2))",
        "assert seen == {(1, 2)}",
    ),
    "a list of arguments is several": (
        "seen = set()",
        "roofline.measure(lambda *a: seen.add(a) or fake.work(1e-3), work=WORK, args=[1, 2])",
        "assert seen == {(1, 2)}",
    ),
    "arguments are made once without rotation": (
        "made = []",
        f"{MEASURE}, make_args=lambda: made.append(1) or (1,))",
        "assert made == [1]",
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
    "tensors are released": (
        "held = []",
        "def make():",
        "    tensor = torch.zeros(1000)",
        "    held.append(weakref.ref(tensor))",
        "    return (tensor,)",
        f"{MEASURE}, make_args=make, name='one')",
        f"{MEASURE}, make_args=make, name='many', cache='rotate')",
        "assert len(held) == 10 and {reference() for reference in held} == {None}",
    ),
    "the device is one of torch": ("assert roofline.device == torch.device('cpu')",),
    "memory that is just there is no skip": ("roofline.require_memory(fake.free_bytes())",),
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
    assert f"MEDIAN {measurement.median_s} {len(measurement.samples.seconds)}" in "".join(suite.result.outlines)
    assert sum(measurement.samples.seconds) == pytest.approx(len(measurement.samples.seconds) * 1e-3)
    assert (measurement.verified, measurement.peak_bytes, measurement.key.timing) == (None, None, "device")
    assert (line["work"]["payload_bytes"], line["samples"]["iterations"] >= 1) == (1000, True)
    derived = {name: line["derived"][name] for name in ("operational_intensity", "flops_per_s", "traffic_GBps")}
    assert derived == pytest.approx({"operational_intensity": 3.0, "flops_per_s": 3e6, "traffic_GBps": 1e-3})
    assert line["derived"]["payload_GBps"] == pytest.approx(1e-3)


def test_names_tell_the_measurements_of_a_test_apart(suite):
    suite.run(
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_it(roofline, fake, n):\n"
        f"    {MEASURE})\n    {MEASURE}, name='second')\n"
    ).assert_outcomes(passed=2)
    assert [one.label for one in suite.saved().measurements] == ["it[1]", "it[1].second", "it[2]", "it[2].second"]


@pytest.mark.parametrize(("arguments", "under"), [("", "no name"), (", name='a'", "the name 'a'")])
def test_measuring_twice_under_one_name_is_refused_and_the_first_kept(suite, arguments, under):
    result = suite.run(body(f"{MEASURE}{arguments})", f"{MEASURE}{arguments})"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [f"E *BadInput: this test measures twice under {under}; give each measurement a name of its own"]
    )
    assert len(suite.saved().measurements) == 1


BAD = {
    "async function": ("async def fn(): pass", "fn, work=WORK", "'fn' is async*expected a plain function*"),
    "async partial": (
        "async def fn(a): pass",
        "functools.partial(fn, 1), work=WORK",
        "* is async*expected a plain function*",
    ),
    "async callable": (
        "class Fn:\n        async def __call__(self): pass",
        "Fn(), work=WORK",
        "* is async*expected a plain function*",
    ),
    "async method": (
        "class Fn:\n        async def go(self): pass",
        "Fn().go, work=WORK",
        "'go' is async*expected a plain function*",
    ),
    "async generator": ("async def fn(): yield", "fn, work=WORK", "'fn' is async*expected a plain function*"),
    "no function": ("fn = 5", "fn, work=WORK", "what is to be timed is 5; expected a function, such as lambda: …"),
    "a result": ("fn = None", "fn, work=WORK", "what is to be timed is None; expected a function, *"),
    "a tensor": (
        "import torch; fn = torch.zeros(1000, 2)",
        "fn, work=WORK",
        "what is to be timed is a Tensor of shape (1000, 2); expected a function, *",
    ),
    "a long value": (
        "fn = [1] * 1000",
        "fn, work=WORK",
        "what is to be timed is [1, 1, *1…; expected a function, *",
    ),
    "a tensor for bytes": (
        "import torch; fn = print; n = torch.arange(3)",
        "fn, work=Work(read_bytes=n)",
        "Work.read_bytes is a Tensor of shape (3,); expected a whole number",
    ),
    "no work": ("", "fn", "work is None; expected Work(*"),
    "bytes for work": ("", "fn, work=4096", "work is 4096; expected Work(*"),
    "zero work": ("", "fn, work=Work()", "Work is zero throughout; expected at least one of *"),
    "zero bytes": ("", "fn, work=Work(read_bytes=0, write_bytes=0)", "Work is zero throughout; expected *"),
    "negative work": ("", "fn, work=Work(read_bytes=-1)", "Work.read_bytes is -1; expected zero or more*"),
    "both arguments": (
        "",
        "fn, work=WORK, args=(), make_args=tuple",
        "both args and make_args were given; expected one of them",
    ),
    "no maker": (
        "",
        "fn, work=WORK, make_args=5",
        "make_args is 5; expected a function that makes one set of arguments",
    ),
    "bare argument": ("", "fn, work=WORK, args=5", "args is a int; expected a tuple of arguments"),
    "text argument": ("", "fn, work=WORK, args='ab'", "args is a str; expected a tuple of arguments"),
    "rotation without a maker": ("", "fn, work=WORK, cache='rotate'", "cache='rotate' needs make_args, *"),
    "rotation of given arguments": (
        "",
        "fn, work=WORK, cache='rotate', args=(1,)",
        "cache='rotate' needs make_args, *",
    ),
    "cache": ("", "fn, work=WORK, cache='hot'", "cache is 'hot'; expected one of warm, rotate, flush"),
    "timing": ("", "fn, work=WORK, timing='cpu'", "timing is 'cpu'; expected one of device, wall"),
    "zero budget": ("", "fn, work=WORK, budget=0", "budget is 0; expected a number above zero"),
    "negative budget": ("", "fn, work=WORK, budget=-1.0", "budget is -1.0; expected a number above zero"),
    "no number as budget": ("", "fn, work=WORK, budget='1s'", "budget is '1s'; expected a number above zero"),
    "NaN as budget": ("", "fn, work=WORK, budget=float('nan')", "budget is nan; expected a number above zero"),
    "infinite budget": ("", "fn, work=WORK, budget=float('inf')", "budget is inf; expected a number above zero"),
    "truth as budget": ("", "fn, work=WORK, budget=True", "budget is True; expected a number above zero"),
    "zero tolerance": ("", "fn, work=WORK, tolerance=0", "tolerance is 0; expected a number above zero"),
    "negative tolerance": ("", "fn, work=WORK, tolerance=-0.1", "tolerance is -0.1; expected a number above zero"),
    "bare bandwidth": ("", "fn, work=WORK, metric='bandwidth'", "metric is 'bandwidth'; expected a name that ends *"),
    "metric without amount": ("", "fn, work=WORK, metric='TFLOPS'", "metric is 'TFLOPS', but work has none of *"),
    "metric no text": ("", "fn, work=WORK, metric=5", "metric is 5; expected a name that ends *"),
    "name no text": ("", "fn, work=WORK, name=5", "name is 5; expected text*"),
    "empty name": ("", "fn, work=WORK, name=''", "name is ''; expected text*"),
    "verify no function": ("", "fn, work=WORK, verify=True", "verify is True; expected a function *"),
}


def test_bad_input_is_refused_in_one_sentence_and_measures_nothing(suite):
    # Should it be taken after all, time goes by at every stamp, and the run ends.
    suite.device(body="stamp = DEVICE.stamp\nDEVICE.stamp = lambda: (DEVICE.work(1.0), stamp())[1]\n")
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
    "zero": "lambda *_: 0",
    "tensor": "lambda *_: torch.tensor(False)",
    "assertion": "lambda *_: pytest.fail.__class__ and (_ for _ in ()).throw(AssertionError('byte 7 is 0'))",
}
RIGHT = ("True", "None", "torch.tensor(True)", "1")


def test_wrong_data_fail_their_test_are_marked_and_never_a_baseline(suite):
    result = suite.run(module({name: (f"{MEASURE}, verify={verify})",) for name, verify in WRONG.items()}))
    result.assert_outcomes(failed=len(WRONG))
    for name in WRONG:
        result.stdout.fnmatch_lines([f"E *WrongData: {name}: wrong data in argument set 0*"])
    result.stdout.fnmatch_lines(["E *WrongData: assertion: wrong data in argument set 0: byte 7 is 0"])
    found = [(one.verified, one.invalid[:28]) for one in suite.saved().measurements]
    assert found == [(False, "wrong data in argument set 0")] * len(WRONG)
    refused_as_baseline(suite, "wrong data in argument set 0")


def test_wrong_data_that_a_test_swallows_are_not_proposed_either(suite):
    suite.run(body("with pytest.raises(AssertionError):", f"    {MEASURE}, verify=lambda *_: False)"))
    refused_as_baseline(suite, "wrong data in argument set 0")


def test_right_data_pass_and_are_noted(suite):
    cases = {f"right{at}": (f"{MEASURE}, verify=lambda *_: {answer})",) for at, answer in enumerate(RIGHT)}
    suite.run(module(cases)).assert_outcomes(passed=len(RIGHT))
    assert [(one.verified, one.invalid) for one in suite.saved().measurements] == [(True, "")] * len(RIGHT)


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


def test_one_wrong_set_among_many_is_found_and_an_error_in_verify_is_no_valid_record(suite):
    suite.device("cache_bytes=4000")
    result = suite.run(
        body("count = iter(range(100))", f"{MEASURE}, {OF_SETS}, verify=lambda n: n != 14)")
        + body(f"{MEASURE}, verify=lambda *_: 1 / 0)", name="broken")
    )
    result.stdout.fnmatch_lines(["E *WrongData: it: wrong data in argument set 5 of 9: verify returned False"])
    assert suite.saved().measurements[1].invalid == "raised ZeroDivisionError: division by zero"


def test_a_function_that_only_promises_to_work_is_refused(suite):
    result = suite.run(body("async def later(): pass", "roofline.measure(lambda: later(), work=WORK)"))
    result.stdout.fnmatch_lines(["E *BadInput: the measured function returned coroutine*"])


@pytest.mark.parametrize(
    ("makes", "said"),
    [
        ("(n for n in range(9))", "a generator, which does its work only when something takes its values"),
        ("concurrent.futures.Future()", "Future, whose work may not be done yet; *call .result() on it inside"),
        ("torch.futures.Future()", "Future, whose work may not be done yet; *call .wait() on it inside"),
        ("(1, [torch.futures.Future()])", "Future, whose work may not be done yet; *call .wait() on it inside"),
        ("pool.apply_async(len, ((),))", "ApplyResult, whose work may not be done yet; *call .get() on it inside"),
        ("torch.zeros(8, device='meta') + 1", "a tensor on `meta`, which holds no data, so nothing was computed"),
    ],
)
def test_a_function_whose_result_is_not_there_yet_is_refused(suite, makes, said):
    result = suite.run(
        body(
            "import concurrent.futures, multiprocessing.pool",
            "with multiprocessing.pool.ThreadPool(1) as pool:",
            f"    roofline.measure(lambda: {makes}, work=WORK)",
        )
    )
    result.stdout.fnmatch_lines([f"E *BadInput: the measured function returned {said}*"])


FAILS = (
    "def fn(*_):",
    "    if fake.works >= AFTER:",
    "        raise RuntimeError('out of memory: tried to allocate 2 GiB')",
    "    fake.work(1e-2)",
)


def test_blocks_before_an_exception_are_kept_and_marked_and_never_a_baseline(suite):
    result = suite.run("AFTER = 40\n" + body(*FAILS, "roofline.measure(fn, work=WORK)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: out of memory: tried to allocate 2 GiB"])
    (measurement,) = suite.saved().measurements
    samples = measurement.samples
    calls_in_a_block = samples.blocks[0].samples * samples.iterations
    assert (40 - samples.warmup_iterations) // calls_in_a_block == len(samples.blocks) > 0
    assert measurement.invalid == "raised RuntimeError: out of memory: tried to allocate 2 GiB"
    refused_as_baseline(suite, "out of memory")


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
# Looked at in the body of the next test, or in its set-up.
NEXT = """
def test_next(roofline, {fixture}):
    held = [reference() for reference in HELD]
    assert {what} and set({what}) == {{None}}
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


@pytest.mark.parametrize(("fixture", "what"), [("fake", "held"), ("before", "before")])
@pytest.mark.parametrize("after", [0, 10, 40, None])
def test_tensors_are_released_before_the_next_test_after_a_failure(suite, after, fixture, what):
    wrong = body(f"{MEASURE}, make_args=make, verify=lambda _: False)")
    raising = f"AFTER = {after}\n" + body(*FAILS, "roofline.measure(fn, work=WORK, make_args=make)")
    following = NEXT.format(fixture=fixture, what=what)
    suite.run(HOLDING + (wrong if after is None else raising) + following).assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize("after", [0, 10, 40])
def test_the_flushs_buffer_is_released_when_a_measurement_ends_well_or_not(suite, after):
    suite.device(body=FLUSHING)
    result = suite.run(
        f"AFTER = {after}\n"
        + body(*FAILS, "roofline.measure(fn, work=WORK, cache='flush')")
        + NEXT.format(fixture="fake", what="held").replace("HELD", "fake.held")
        + body(f"{MEASURE}, cache='flush')", "assert {one() for one in fake.held} == {None}", name="well")
    )
    result.assert_outcomes(failed=1, passed=2)


# Stamps that calibrating takes on this queue, and with them warming up and some blocks.
CALIBRATED, MEASURING = "queue_depth=64, vanish_after=240", "queue_depth=64, vanish_after=460"


@pytest.mark.parametrize("device", ["vanish_after=0", CALIBRATED, MEASURING])
def test_a_device_that_vanishes_is_named_and_what_it_measured_marked(suite, device):
    suite.device(device)
    result = suite.run(
        body(
            "def release():",
            "    raise RuntimeError('no device')",
            "fake.release = release",
            "roofline.measure(lambda: fake.work(1e-2), work=WORK)",
        )
    )
    result.stdout.fnmatch_lines(["E *DeviceError: fake stopped answering: the device fell off the bus"])
    if device != MEASURING:
        result.stdout.fnmatch_lines(["0 measured"])
        return
    (measurement,), (outcome,) = suite.saved().measurements, suite.saved().outcomes
    assert "raised DeviceError: fake stopped answering" in measurement.invalid
    assert "fake stopped answering: the device fell off the bus" in outcome.reason


def test_ctrl_c_in_the_middle_keeps_what_was_measured(suite):
    fails = [
        line.replace("RuntimeError('out of memory: tried to allocate 2 GiB')", "KeyboardInterrupt") for line in FAILS
    ]
    suite.run("AFTER = 40\n" + body(*fails, "roofline.measure(fn, work=WORK)"), no_reraise_ctrlc=True)
    assert suite.saved().measurements[0].invalid == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "timing", "cache"),
    [("", "device", "warm"), (", timing='wall'", "wall", "warm"), (", cache='flush'", "device", "flush")],
)
def test_timing_and_cache_policy_are_part_of_the_key(suite, arguments, timing, cache):
    suite.device("cache_bytes=4096")
    suite.run(body(f"{MEASURE}{arguments})"))
    key = suite.saved().measurements[0].key
    assert (key.timing, key.cache) == (timing, cache)


@pytest.mark.parametrize(("argument", "option"), [(", budget=0.02", "5"), ("", "0.02")])
def test_a_budget_given_to_measure_wins_over_the_command_line(suite, argument, option):
    suite.run(body(f"{MEASURE}{argument})"), f"--roofline-budget={option}")
    assert suite.saved().measurements[0].samples.measuring_s < 0.03


# Rotation, and how many sets it takes.


@pytest.mark.parametrize("seconds_per_set", [0.0, 0.9])
def test_the_hosts_speed_decides_neither_the_number_of_sets_nor_the_label(suite, seconds_per_set):
    suite.device("cache_bytes=2000")
    making = f"make_args=lambda: fake.pass_time({seconds_per_set})"
    suite.run(body(f"roofline.measure(lambda: fake.work(1e-2), {making}, work=WORK, cache='rotate')"))
    samples = suite.saved().measurements[0].samples
    assert (samples.argument_sets, samples.labels) == (5, ())


@pytest.mark.parametrize("free_bytes", [9_999, 10_000, 2**36])
def test_free_memory_decides_only_whether_there_is_a_measurement(suite, free_bytes):
    suite.device("cache_bytes=2000")
    text = body(f"fake.free_bytes = lambda: {free_bytes}", f"{MEASURE}, make_args=tuple, cache='rotate')")
    result = suite.run(text, "-rs")
    if free_bytes >= 10_000:
        samples = suite.saved().measurements[0].samples
        assert (samples.argument_sets, samples.labels) == (5, ())
        return
    needs = "needs 10.0 kB of free memory to rotate through 5 sets of arguments, found 10.0 kB"
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{needs}; free what*"])
    result = suite.run(text, "--roofline-require-hardware")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{needs}*--roofline-require-hardware is set*"])


def test_sets_that_take_long_to_make_are_told_of_while_they_are_made_and_at_the_end(suite):
    suite.device("cache_bytes=2000")
    result = suite.run(body(f"{MEASURE}, make_args=lambda: fake.pass_time(6.0), cache='rotate')"))
    said = "it: make_args took 12 s for 2 of the 5 sets of arguments to rotate through: about 30 s for all*"
    result.stdout.fnmatch_lines([f"roofline: {said}", f"WARNING: {said}", "*1 passed*"])


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


def test_a_verify_for_all_sets_is_asked_once_and_its_sets_are_ruined_in_place(suite):
    suite.device("cache_bytes=2000")
    asked = f"{MEASURE}, make_args=check.make, cache='rotate', verify=check)"
    result = suite.run(
        BULK
        + body("check = Check()", asked, "assert [check.made] == check.spoiled == check.seen == [[*range(5)]]")
        + body("check = Check(3)", asked, name="wrong")
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *WrongData: wrong: wrong data in argument set 3 of 5: verify returned False"])
    assert suite.saved().measurements[0].verified is True


def test_a_verify_for_all_sets_sees_only_those_that_were_called_with(suite):
    suite.device("cache_bytes=10**6")
    result = suite.run(
        BULK
        + body(
            "check = Check()",
            "roofline.measure(lambda *_: fake.work(1e-2), work=WORK, make_args=check.make, cache='rotate',",
            "    verify=check)",
            "assert len(check.made) == 2001",
            "for (some,) in (check.spoiled, check.seen):",
            "    assert 0 < len(some) < 2001 and some == check.made[:len(some)]",
        )
    )
    result.assert_outcomes(passed=1)


# What a copy is labelled and believed: of an H100 with 3350 GB/s and 50 MB of cache.

COPY = """
@pytest.mark.parametrize("case", ["it"])
def test_copy(roofline, fake, case):
    work = Work(read_bytes={size}, write_bytes={size}, payload_bytes={size})
    roofline.measure(lambda *_: fake.work({seconds}), make_args=lambda: (), work=work, cache="{cache}")
"""
SMALL = "cache_bytes=50 * 2**20, memory_bytes=64 * 2**20"
FAST = "of the datasheet's peak (3350 GB/s)"


def copied(suite, device, size, cache, share):
    """The copy of so many bytes at a share of the datasheet's peak."""
    suite.device(device)
    suite.run(COPY.format(size=size, cache=cache, seconds=2 * size / (share * 3350e9)))
    return suite.saved()


@pytest.mark.parametrize(
    ("device", "size", "cache", "resident"),
    [
        (SMALL, 16 * MIB, "rotate", True),  # half of all memory does not hold a rotation
        ("", 16 * MIB, "rotate", False),
        ("cache_bytes=2**20, memory_bytes=16 * 2**20", 4 * MIB, "rotate", False),  # a set is far larger than it
        ("", 16 * MIB, "warm", True),  # bandwidth.md: rotated over 4 × the last-level cache, or labelled
        ("", 256 * MIB, "warm", False),
        ("cache_bytes=4096", 1024, "flush", False),
    ],
)  # fmt: skip
def test_buffers_that_the_cache_holds_are_labelled(suite, device, size, cache, resident):
    (measurement,) = copied(suite, device, size, cache, 1e-4).measurements
    assert ("cache_resident" in measurement.samples.labels) == resident


@pytest.mark.parametrize(
    ("device", "size", "cache", "share", "believed"),
    [
        ("", GIB, "rotate", 1.019, True),
        ("", GIB, "rotate", 1.03, False),
        ("", 16 * MIB, "rotate", 2, False),
        ("", 8 * MIB, "rotate", 2, True),  # too small to be bounded
        (SMALL, 16 * MIB, "rotate", 2, True),  # cache-resident
        ("", 16 * MIB, "warm", 2, True),
        ("product='Some New GPU'", GIB, "rotate", 60, True),
    ],
)
def test_more_than_the_datasheets_peak_is_invalid_and_never_a_baseline(suite, device, size, cache, share, believed):
    run = copied(suite, device, size, cache, share)
    assert (FAST in run.measurements[0].invalid) != believed
    assert (run.outcomes[-1].verdicts == ("INVALID",)) != believed
    if not believed:
        refused_as_baseline(suite, "of the datasheet's peak")


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
    pytester.runpytest_subprocess("--roofline-device=cpu", "--roofline-save=run", "-pno:benchmark").assert_outcomes(
        passed=4
    )
    run = read_run(pytester.path / ".roofline" / "runs" / "run.jsonl")
    why = {one.key.parameters["name"]: one.invalid for one in run.measurements if not one.key.is_canary}
    assert set(why) == {"traffic", "payload", "arithmetic", "collective"}
    assert all("is `work` right, and does the function do it?" in one for one in why.values()), why


@pytest.mark.parametrize("where", ["device", "host"])
def test_memory_that_is_not_there_is_a_skip_and_a_failure_where_hardware_is_required(suite, machine, where):
    machine.memory(64 * GIB, 2 * 10**9)
    suite.device("memory_bytes=2 * 10**9")
    text, said = body(f"roofline.require_memory(4_730_000_000, where='{where}')"), f"needs 4.73 GB of {where} memory"
    suite.run(text, "-rs").stdout.fnmatch_lines([f"SKIPPED*{said}, found 2.00 GB"])
    suite.result.assert_outcomes(skipped=1)
    suite.run(text, "--roofline-require-hardware").assert_outcomes(failed=1)
    suite.result.stdout.fnmatch_lines([f"*{said}, found 2.00 GB, and --roofline-require-hardware*"])


def test_a_replaced_function_is_what_is_measured_and_labelled_and_never_a_baseline(suite):
    suite.device(
        body="def pytest_roofline_function(item, name, fn):\n    return lambda: (fn(), DEVICE.work(3e-3))\n",
    )
    suite.run(body(f"{MEASURE})"))
    samples = suite.saved().measurements[0].samples
    assert ("replaced" in samples.labels, samples.seconds[0]) == (True, pytest.approx(4e-3, rel=1e-4))
    refused_as_baseline(suite, "replaced")


HOLDS = "lambda *_: (fake.allocate(3 * 2**20), fake.allocate(2**20), fake.allocate(-4 * 2**20), fake.work(1e-3))"
PEAK = f"roofline.measure({HOLDS}, work=WORK, peak_bytes=True"


def test_the_peak_of_a_call_is_what_it_held_beside_its_arguments(suite):
    suite.device("cache_bytes=4000")
    cases = {
        "own": ("fake.allocate(8 * 2**20)", f"assert {PEAK}).peak_bytes == 4 * 2**20"),
        "sets": (f"{PEAK}, cache='rotate', make_args=lambda: fake.allocate(2**20) or ())",),
        "none": (f"{MEASURE}, peak_bytes=True)",),
        "unasked": (f"roofline.measure({HOLDS}, work=WORK)",),
        "untold": ("fake.peak_bytes = lambda call: None", f"{PEAK})"),
    }
    suite.run(module(cases)).assert_outcomes(passed=len(cases))
    assert [one.peak_bytes for one in suite.saved().measurements] == [4 * MIB, 4 * MIB, 0, None, None]


@pytest.mark.parametrize(("arguments", "more"), [(", peak_bytes=False", 0), (", peak_bytes=True", 1)])
def test_the_peak_takes_one_call_that_is_not_timed(suite, arguments, more):
    suite.run(body(f"{MEASURE}{arguments})", "print('WORKS', fake.works)"), "-s")
    samples = suite.saved().measurements[0].samples
    timed = samples.warmup_iterations + samples.iterations * len(samples.seconds)
    suite.result.stdout.fnmatch_lines([f"*WORKS {timed + more}"])


def test_a_call_that_fails_while_its_peak_is_taken_keeps_the_samples_and_marks_them(suite):
    suite.device(body="def peak(call):\n    raise RuntimeError('out of memory')\nDEVICE.peak_bytes = peak\n")
    suite.run(body(f"{PEAK})")).assert_outcomes(failed=1)
    (measurement,) = suite.saved().measurements
    assert (measurement.invalid, measurement.peak_bytes) == ("raised RuntimeError: out of memory", None)
