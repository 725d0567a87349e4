"""`roofline.measure`, as tests call it: what it takes, refuses, writes down and lets go."""

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.judging.proposals import propose
from pytest_roofline.judging.runs import read_run

GIB, MIB = 2**30, 2**20


def body(*lines):
    """A test module with one test of these lines."""
    return "def test_it(roofline, fake):\n" + "".join(f"    {line}\n" for line in lines)


MEASURE = "roofline.measure(lambda *_: fake.work(1e-3), work=WORK"


def test_a_measurement_is_in_the_run_file_with_its_samples(suite):
    suite.run(body(f"{MEASURE})"))
    (measurement,) = suite.saved().measurements
    assert pytest.approx(len(measurement.samples.seconds) * 1e-3) == sum(measurement.samples.seconds)


def test_what_measure_returns_is_what_the_run_file_holds(suite):
    suite.run(body(f"result = {MEASURE})", "print('MEDIAN', result.median_s, len(result.samples.seconds))"), "-s")
    (measurement,) = suite.saved().measurements
    assert f"MEDIAN {measurement.median_s} {len(measurement.samples.seconds)}" in "".join(suite.result.outlines)


def test_measure_gives_the_function_its_arguments(suite):
    result = suite.run(
        body("seen = set()", "roofline.measure(lambda *a: seen.add(a) or fake.work(1e-3), work=WORK, args=(1, 2))")
        + "    assert seen == {(1, 2)}\n"
    )
    result.assert_outcomes(passed=1)


def test_a_list_of_arguments_is_several(suite):
    result = suite.run(
        body("seen = set()", "roofline.measure(lambda *a: seen.add(a) or fake.work(1e-3), work=WORK, args=[1, 2])")
        + "    assert seen == {(1, 2)}\n"
    )
    result.assert_outcomes(passed=1)


def test_make_args_is_called_once_without_rotation(suite):
    result = suite.run(
        body("made = []", f"{MEASURE}, make_args=lambda: made.append(1) or (1,))") + "    assert len(made) == 1\n"
    )
    result.assert_outcomes(passed=1)


def test_a_test_may_measure_several_times_under_several_names(suite):
    suite.run(body(f"{MEASURE}, name='first')", f"{MEASURE}, name='second')"))
    assert [measurement.key.name for measurement in suite.saved().measurements] == ["first", "second"]


def test_names_are_part_of_the_labels(suite):
    suite.run(body(f"{MEASURE})", f"{MEASURE}, name='second')"))
    assert [measurement.label for measurement in suite.saved().measurements] == ["it", "it.second"]


def test_two_tests_may_use_the_same_name(suite):
    result = suite.run(
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_it(roofline, fake, n):\n    " + MEASURE + ", name='a')\n"
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("", "this test measures twice under no name; give each measurement a name of its own"),
        (", name='a'", "this test measures twice under the name 'a'; give each measurement a name of its own"),
    ],
)
def test_measuring_twice_under_one_name_is_refused(suite, arguments, sentence):
    result = suite.run(body(f"{MEASURE}{arguments})", f"{MEASURE}{arguments})"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *BadInput: {sentence}"])


def test_measuring_twice_under_one_name_keeps_the_first(suite):
    suite.run(body(f"{MEASURE})", f"{MEASURE})"))
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


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(suite, case):
    prepare, arguments, sentence = BAD[case]
    # Should it be taken after all, time goes by at every stamp, and the run ends.
    suite.device(body="stamp = DEVICE.stamp\nDEVICE.stamp = lambda: (DEVICE.work(1.0), stamp())[1]\n")
    result = suite.run(
        body(
            "calls = []",
            "fn = lambda *_: calls.append(1)",
            prepare or "pass",
            f"with pytest.raises(ValueError) as caught:\n        roofline.measure({arguments})",
            "print('SAID', type(caught.value).__name__, caught.value)",
            "assert not calls",
        ),
        "-s",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*SAID {BadInput.__name__} {sentence.replace('[', '[[]')}"])


def test_refused_input_measures_nothing(suite):
    suite.run(body("roofline.measure(5, work=WORK)"))
    assert list((suite.pytester.path / ".roofline").rglob("*.jsonl")) == [] or not suite.saved().measurements


def test_refused_input_fails_its_test_alone(suite):
    result = suite.run(body("roofline.measure(5, work=WORK)") + body(f"{MEASURE})").replace("test_it", "test_other"))
    result.assert_outcomes(failed=1, passed=1)


WRONG = {
    "False": "lambda *_: False",
    "zero": "lambda *_: 0",
    "tensor": "lambda *_: torch.tensor(False)",
    "AssertionError": "lambda *_: pytest.fail.__class__ and (_ for _ in ()).throw(AssertionError('byte 7 is 0'))",
}


@pytest.mark.parametrize("verify", WRONG)
def test_wrong_data_fail_the_test(suite, verify):
    result = suite.run(body(f"{MEASURE}, verify={WRONG[verify]})"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *WrongData: it: wrong data in argument set 0*"])


@pytest.mark.parametrize("verify", WRONG)
def test_a_record_of_wrong_data_is_marked(suite, verify):
    suite.run(body(f"{MEASURE}, verify={WRONG[verify]})"))
    (measurement,) = suite.saved().measurements
    assert (measurement.verified, measurement.invalid[:28]) == (False, "wrong data in argument set 0")


def test_an_assertions_message_says_what_is_wrong(suite):
    result = suite.run(body(f"{MEASURE}, verify={WRONG['AssertionError']})"))
    result.stdout.fnmatch_lines(["E *WrongData: it: wrong data in argument set 0: byte 7 is 0"])


def test_wrong_data_are_never_proposed_as_a_baseline(suite):
    suite.run(body(f"{MEASURE}, verify=lambda *_: False)"))
    with pytest.raises(BadInput, match="wrong data in argument set 0"):
        propose([suite.saved()], everything=True, accept_slower=True)


def test_wrong_data_that_a_test_swallows_are_not_proposed_either(suite):
    suite.run(body(f"with pytest.raises(AssertionError):\n        {MEASURE}, verify=lambda *_: False)"))
    with pytest.raises(BadInput, match="wrong data in argument set 0"):
        propose([suite.saved()], everything=True, accept_slower=True)


@pytest.mark.parametrize("answer", ["True", "None", "torch.tensor(True)", "1"])
def test_right_data_pass_and_are_noted(suite, answer):
    result = suite.run(body(f"{MEASURE}, verify=lambda *_: {answer})"))
    result.assert_outcomes(passed=1)
    (measurement,) = suite.saved().measurements
    assert (measurement.verified, measurement.invalid) == (True, "")


def test_unverified_data_are_noted_as_such(suite):
    suite.run(body(f"{MEASURE})"))
    assert suite.saved().measurements[0].verified is None


def test_verify_comes_after_the_last_call(suite):
    result = suite.run(
        body(
            "order = []",
            "roofline.measure(lambda: order.append('call') or fake.work(1e-3), work=WORK,"
            " verify=lambda: order.append('verify'))",
            "assert order.index('verify') == len(order) - 1",
        )
    )
    result.assert_outcomes(passed=1)


def test_verify_sees_every_set_that_was_timed(suite):
    suite.device("cache_bytes=4000")
    result = suite.run(
        body(
            "count = iter(range(100))",
            "called, verified = set(), set()",
            "roofline.measure(lambda n: called.add(n) or fake.work(1e-3), work=WORK, cache='rotate',"
            " make_args=lambda: (next(count),), verify=lambda n: verified.add(n))",
            "assert called == set(range(18))",
            "assert verified == set(range(9, 18))",
        )
    )
    result.assert_outcomes(passed=1)


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


def test_one_wrong_set_among_many_is_found(suite):
    suite.device("cache_bytes=4000")
    result = suite.run(
        body(
            "count = iter(range(100))",
            f"{MEASURE}, cache='rotate', make_args=lambda: (next(count),), verify=lambda n: n != 14)",
        )
    )
    result.stdout.fnmatch_lines(["E *WrongData: it: wrong data in argument set 5 of 9: verify returned False"])


def test_an_error_in_verify_leaves_no_valid_record(suite):
    suite.run(body(f"{MEASURE}, verify=lambda *_: 1 / 0)"))
    assert suite.saved().measurements[0].invalid == "raised ZeroDivisionError: division by zero"


OUT_OF_MEMORY = body(
    "def fn():",
    "    if fake.works >= AFTER:",
    "        raise RuntimeError('out of memory: tried to allocate 2 GiB')",
    "    fake.work(1e-2)",
    "roofline.measure(fn, work=WORK)",
)


def test_an_exception_in_the_function_fails_the_test_with_its_cause(suite):
    result = suite.run("AFTER = 0\n" + OUT_OF_MEMORY)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *RuntimeError: out of memory: tried to allocate 2 GiB"])


def test_an_exception_in_the_function_does_not_touch_the_next_test(suite):
    result = suite.run("AFTER = 0\n" + OUT_OF_MEMORY + body(f"{MEASURE})").replace("test_it", "test_next"))
    result.assert_outcomes(failed=1, passed=1)


def test_blocks_before_an_exception_are_kept_and_the_broken_one_is_not(suite):
    suite.run("AFTER = 40\n" + OUT_OF_MEMORY)
    (measurement,) = suite.saved().measurements
    samples = measurement.samples
    calls_in_a_block = samples.blocks[0].samples * samples.iterations
    assert (40 - samples.warmup_iterations) // calls_in_a_block == len(samples.blocks) > 0


def test_samples_before_an_exception_are_marked_with_it(suite):
    suite.run("AFTER = 40\n" + OUT_OF_MEMORY)
    assert suite.saved().measurements[0].invalid == "raised RuntimeError: out of memory: tried to allocate 2 GiB"


def test_samples_before_an_exception_never_become_a_baseline(suite):
    suite.run("AFTER = 40\n" + OUT_OF_MEMORY)
    with pytest.raises(BadInput, match="out of memory"):
        propose([suite.saved()], everything=True, accept_slower=True)


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

NEXT = """
def test_next(roofline, {fixture}):
    held = [reference() for reference in HELD]
    assert {what} and set({what}) == {{None}}
"""
WHEN = {
    "body": NEXT.format(fixture="fake", what="held"),
    "set-up": NEXT.format(fixture="before", what="before"),
}


def test_tensors_of_a_good_measurement_are_released_when_it_ends(suite):
    result = suite.run(
        HOLDING + body(f"{MEASURE}, make_args=make)", "assert [reference() for reference in HELD] == [None]")
    )
    result.assert_outcomes(passed=1)


def test_tensors_of_a_rotation_are_released_when_it_ends(suite):
    suite.device("cache_bytes=4000")
    result = suite.run(
        HOLDING
        + body(f"{MEASURE}, make_args=make, cache='rotate')", "assert {reference() for reference in HELD} == {None}")
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("after", [0, 10, 40])
def test_tensors_are_released_before_the_next_test_after_an_exception(suite, after, when):
    result = suite.run(
        HOLDING
        + body(
            "def fn(tensor):",
            f"    if fake.works >= {after}:",
            "        raise RuntimeError('out of memory')",
            "    fake.work(1e-2)",
            "roofline.measure(fn, work=WORK, make_args=make)",
        )
        + WHEN[when]
    )
    result.assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize("when", WHEN)
def test_tensors_are_released_before_the_next_test_after_wrong_data(suite, when):
    result = suite.run(HOLDING + body(f"{MEASURE}, make_args=make, verify=lambda _: False)") + WHEN[when])
    result.assert_outcomes(failed=1, passed=1)


def test_the_devices_cache_is_given_back_after_every_measurement(suite):
    suite.device(body="RELEASED = []\nDEVICE.release = lambda: RELEASED.append(DEVICE.works)\n")
    result = suite.run(
        body(
            "released = []",
            "fake.release = lambda: released.append(1)",
            f"{MEASURE})",
            "with pytest.raises(ZeroDivisionError):",
            "    roofline.measure(lambda: 1 / 0, work=WORK, name='bad')",
            "assert len(released) == 2",
        )
    )
    result.assert_outcomes(passed=1)


# Stamps that calibrating takes on this queue, and with them warming up and some blocks.
CALIBRATED, MEASURING = "queue_depth=64, vanish_after=240", "queue_depth=64, vanish_after=460"


@pytest.mark.parametrize("device", ["vanish_after=0", CALIBRATED, MEASURING])
def test_a_device_that_vanishes_fails_the_test_by_name(suite, device):
    suite.device(device)
    result = suite.run(body("roofline.measure(lambda: fake.work(1e-2), work=WORK)"))
    result.stdout.fnmatch_lines(["E *DeviceError: fake stopped answering: the device fell off the bus"])


@pytest.mark.parametrize("device", ["vanish_after=0", CALIBRATED])
def test_a_device_that_vanished_before_the_first_block_leaves_no_measurement(suite, device):
    suite.device(device)
    result = suite.run(body("roofline.measure(lambda: fake.work(1e-2), work=WORK)"))
    result.stdout.fnmatch_lines(["0 measured"])


def test_samples_before_a_device_vanished_are_kept_and_marked(suite):
    suite.device(MEASURING)
    suite.run(body("roofline.measure(lambda: fake.work(1e-2), work=WORK)"))
    (measurement,) = suite.saved().measurements
    assert "raised DeviceError: fake stopped answering" in measurement.invalid


def test_a_release_that_fails_too_does_not_hide_why_the_device_stopped(suite):
    suite.device(MEASURING)
    suite.run(
        body(
            "def release():",
            "    raise RuntimeError('no device')",
            "fake.release = release",
            "roofline.measure(lambda: fake.work(1e-2), work=WORK)",
        )
    )
    (outcome,) = suite.saved().outcomes
    assert "fake stopped answering: the device fell off the bus" in outcome.reason


def test_ctrl_c_in_the_middle_keeps_what_was_measured(suite):
    suite.run(
        body(
            "def fn():",
            "    if fake.works == 40:",
            "        raise KeyboardInterrupt",
            "    fake.work(1e-2)",
            "roofline.measure(fn, work=WORK)",
        ),
        no_reraise_ctrlc=True,
    )
    assert suite.saved().measurements[0].invalid == "interrupted"


def test_operational_intensity_and_flops_stand_beside_the_samples(suite):
    suite.run(
        body(
            "work = Work(read_bytes=600, write_bytes=400, flops=3000)",
            "roofline.measure(lambda: fake.work(1e-3), work=work)",
        )
    )
    (line,) = suite.lines("measurement")
    assert (3.0, pytest.approx(3e6)) == (line["derived"]["operational_intensity"], line["derived"]["flops_per_s"])


def test_iterations_and_work_stand_beside_the_samples(suite):
    suite.run(body(f"{MEASURE})"))
    (line,) = suite.lines("measurement")
    assert (line["work"]["payload_bytes"], line["samples"]["iterations"] >= 1) == (1000, True)


def test_rates_in_the_run_file_are_per_second_of_the_median(suite):
    suite.run(body(f"{MEASURE})"))
    derived = suite.lines("measurement")[0]["derived"]
    assert (pytest.approx(2e-3), pytest.approx(1e-3)) == (derived["traffic_GBps"], derived["payload_GBps"])


@pytest.mark.parametrize(("arguments", "timing"), [("", "device"), (", timing='wall'", "wall")])
def test_the_timing_asked_for_is_part_of_the_key(suite, arguments, timing):
    suite.run(body(f"{MEASURE}{arguments})"))
    assert timing == suite.saved().measurements[0].key.timing


@pytest.mark.parametrize("cache", ["warm", "flush"])
def test_the_cache_policy_asked_for_is_part_of_the_key(suite, cache):
    suite.device("cache_bytes=4096")
    suite.run(body(f"{MEASURE}, cache='{cache}')"))
    assert cache == suite.saved().measurements[0].key.cache


def test_a_budget_given_to_measure_wins_over_the_command_line(suite):
    suite.run(body(f"{MEASURE}, budget=0.02)"), "--roofline-budget=5")
    assert suite.saved().measurements[0].samples.measuring_s < 0.03


def test_the_command_lines_budget_is_that_of_every_measurement(suite):
    suite.run(body(f"{MEASURE})"), "--roofline-budget=0.02")
    assert suite.saved().measurements[0].samples.measuring_s < 0.03


COPY = """
@pytest.mark.parametrize("case", ["it"])
def test_copy(roofline, fake, case):
    size = {size}
    work = Work(read_bytes=size, write_bytes=size, payload_bytes=size)
    roofline.measure(lambda *_: fake.work({seconds}), make_args=lambda: (), work=work, cache="{cache}")
"""


def labels_of(suite, **case):
    """The labels of one copy."""
    suite.run(COPY.format(**{"seconds": 1e-2, "cache": "rotate", "size": MIB} | case))
    return suite.saved().measurements[0].samples.labels


def test_a_rotation_that_half_of_all_memory_does_not_hold_is_cache_resident(suite):
    suite.device("cache_bytes=50 * 2**20, memory_bytes=64 * 2**20")
    assert "cache_resident" in labels_of(suite, size=16 * MIB)


def test_a_rotation_that_memory_allows_is_not_cache_resident(suite):
    assert "cache_resident" not in labels_of(suite, size=16 * MIB)


@pytest.mark.parametrize("seconds_per_set", [0.0, 0.9])
def test_the_hosts_speed_decides_neither_the_number_of_sets_nor_the_label(suite, seconds_per_set):
    suite.device("cache_bytes=2000")
    suite.run(
        body(
            f"roofline.measure(lambda: fake.work(1e-2), make_args=lambda: fake.pass_time({seconds_per_set}), work=WORK,"
            " cache='rotate')"
        )
    )
    samples = suite.saved().measurements[0].samples
    assert (samples.argument_sets, samples.labels) == (5, ())


@pytest.mark.parametrize("free_bytes", [9_999, 10_000, 2**36])
def test_free_memory_decides_only_whether_there_is_a_measurement(suite, free_bytes):
    suite.device("cache_bytes=2000")
    result = suite.run(
        body(f"fake.free_bytes = lambda: {free_bytes}", f"{MEASURE}, make_args=tuple, cache='rotate')"), "-rs"
    )
    if free_bytes < 10_000:
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(
            ["SKIPPED*needs 10.0 kB of free memory to rotate through 5 sets of arguments, found 10.0 kB; free what*"]
        )
    else:
        samples = suite.saved().measurements[0].samples
        assert (samples.argument_sets, samples.labels) == (5, ())


def test_too_little_free_memory_for_a_rotation_fails_where_hardware_is_required(suite):
    suite.device("cache_bytes=2000")
    result = suite.run(
        body("fake.free_bytes = lambda: 1000", f"{MEASURE}, make_args=tuple, cache='rotate')"),
        "--roofline-require-hardware",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*needs 10.0 kB of free memory*, found 1.00 kB*--roofline-require-hardware is set*"])


def test_sets_that_take_long_to_make_are_told_of_while_they_are_made_and_at_the_end(suite):
    suite.device("cache_bytes=2000")
    result = suite.run(body(f"{MEASURE}, make_args=lambda: fake.pass_time(6.0), cache='rotate')"))
    said = "it: make_args took 12 s for 2 of the 5 sets of arguments to rotate through: about 30 s for all*"
    result.stdout.fnmatch_lines([f"roofline: {said}", f"WARNING: {said}", "*1 passed*"])


BULK = """
class Check:
    def __init__(self, wrong=None):
        self.wrong, self.spoiled, self.seen = wrong, [], []

    def __call__(self, number):
        return number != self.wrong

    def spoil(self, sets):
        self.spoiled.append([number for number, in sets])

    def first_wrong(self, sets):
        self.seen.append([number for number, in sets])
        return self.wrong

"""


def test_a_verify_for_all_sets_is_asked_once_and_its_sets_are_ruined_in_place(suite):
    suite.device("cache_bytes=2000")
    result = suite.run(
        BULK
        + body(
            "check, made = Check(), []",
            "make = lambda: made.append(len(made)) or made[-1]",
            f"{MEASURE}, make_args=make, cache='rotate', verify=check)",
            "assert (made, check.spoiled, check.seen) == ([0, 1, 2, 3, 4], [[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]])",
        )
    )
    result.assert_outcomes(passed=1)
    assert suite.saved().measurements[0].verified is True


def test_a_verify_for_all_sets_sees_only_those_that_were_called_with(suite):
    suite.device("cache_bytes=10**6")
    result = suite.run(
        BULK
        + body(
            "check, made = Check(), []",
            "make = lambda: made.append(len(made)) or made[-1]",
            "roofline.measure(lambda *_: fake.work(1e-2), work=WORK, make_args=make, cache='rotate', verify=check)",
            "assert len(made) == 2001",
            "(spoiled,), (seen,) = check.spoiled, check.seen",
            "assert 0 < len(spoiled) < 2001 and spoiled == made[:len(spoiled)]",
            "assert 0 < len(seen) < 2001 and seen == made[:len(seen)]",
        )
    )
    result.assert_outcomes(passed=1)


def test_what_a_verify_for_all_sets_names_is_told_as_what_is_found_set_by_set(suite):
    suite.device("cache_bytes=2000")
    result = suite.run(
        BULK
        + body(
            "made = []",
            f"{MEASURE}, make_args=lambda: made.append(1) or len(made) - 1, cache='rotate', verify=Check(3))",
        )
    )
    result.stdout.fnmatch_lines(["E *WrongData: it: wrong data in argument set 3 of 5: verify returned False"])


def test_a_copy_far_larger_than_the_cache_is_not_cache_resident_with_one_set(suite):
    suite.device("cache_bytes=2**20, memory_bytes=16 * 2**20")
    assert "cache_resident" not in labels_of(suite, size=4 * MIB)


def test_warm_buffers_that_fit_the_cache_are_cache_resident(suite):
    # bandwidth.md: rotated over 4 × the last-level cache, or labelled.
    assert "cache_resident" in labels_of(suite, size=16 * MIB, cache="warm")


def test_warm_buffers_that_overflow_the_cache_are_not_cache_resident(suite):
    assert "cache_resident" not in labels_of(suite, size=256 * MIB, cache="warm")


def test_flushed_buffers_are_not_cache_resident(suite):
    suite.device("cache_bytes=4096")
    assert "cache_resident" not in labels_of(suite, size=1024, cache="flush")


def verdict_of(suite, **case):
    """The verdict on one copy, and why it is invalid."""
    suite.run(COPY.format(**{"cache": "rotate"} | case))
    run = suite.saved()
    return run.outcomes[-1].verdicts, run.measurements[0].invalid


def test_more_than_the_datasheets_peak_is_invalid(suite):
    verdicts, why = verdict_of(suite, size=GIB, seconds=10e-6)
    assert (verdicts, "of the datasheet's peak (3350 GB/s)" in why) == (("INVALID",), True)


NOTHING = """
import pytest
from pytest_roofline import Work
from pytest_roofline.measuring import host

# Whoever else uses this machine says nothing of this.
host.too_busy = lambda _: ""
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


def test_more_than_the_datasheets_peak_never_becomes_a_baseline(suite):
    verdict_of(suite, size=GIB, seconds=10e-6)
    with pytest.raises(BadInput, match="of the datasheet's peak"):
        propose([suite.saved()], everything=True, accept_slower=True)


def seconds_at(share, size):
    """How long a copy takes at this share of an H100's 3350 GB/s."""
    return 2 * size / (share * 3350e9)


def test_two_percent_above_the_peak_are_believed(suite):
    assert verdict_of(suite, size=GIB, seconds=seconds_at(1.019, GIB))[1] == ""


def test_three_percent_above_the_peak_are_not_believed(suite):
    assert verdict_of(suite, size=GIB, seconds=seconds_at(1.03, GIB))[1]


def test_the_bound_holds_from_sixteen_mebibytes(suite):
    assert verdict_of(suite, size=16 * MIB, seconds=seconds_at(2, 16 * MIB))[1]


def test_smaller_copies_than_sixteen_mebibytes_are_not_bounded(suite):
    assert verdict_of(suite, size=8 * MIB, seconds=seconds_at(2, 8 * MIB))[1] == ""


def test_cache_resident_copies_are_not_bounded(suite):
    suite.device("cache_bytes=50 * 2**20, memory_bytes=64 * 2**20")
    assert verdict_of(suite, size=16 * MIB, seconds=seconds_at(2, 16 * MIB))[1] == ""


def test_warm_copies_within_the_cache_are_not_bounded(suite):
    assert verdict_of(suite, size=16 * MIB, seconds=seconds_at(2, 16 * MIB), cache="warm")[1] == ""


def test_an_unknown_product_has_no_peak_to_be_above(suite):
    suite.device("product='Some New GPU'")
    assert verdict_of(suite, size=GIB, seconds=10e-6)[1] == ""


def test_memory_that_is_not_there_is_a_skip_with_need_and_found(suite):
    suite.device("memory_bytes=2 * 10**9")
    result = suite.run(body("roofline.require_memory(4_730_000_000)"), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs 4.73 GB of device memory, found 2.00 GB"])


def test_memory_that_is_just_there_is_no_skip(suite):
    suite.device("memory_bytes=2 * 10**9")
    suite.run(body("roofline.require_memory(2 * 10**9)")).assert_outcomes(passed=1)


def test_host_memory_is_asked_of_the_host(suite, machine):
    machine.memory(64 * GIB, GIB)
    result = suite.run(body("roofline.require_memory(2 * 10**9, where='host')"), "-rs")
    result.stdout.fnmatch_lines(["SKIPPED*needs 2.00 GB of host memory, found 1.07 GB"])


def test_missing_memory_fails_where_hardware_is_required(suite):
    suite.device("memory_bytes=2 * 10**9")
    result = suite.run(body("roofline.require_memory(4_730_000_000)"), "--roofline-require-hardware")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*needs 4.73 GB of device memory, found 2.00 GB, and --roofline-require-hardware*"])


def test_the_device_of_the_fixture_is_a_torch_device(suite):
    suite.run(body("assert roofline.device == torch.device('cpu')")).assert_outcomes(passed=1)


def test_a_replaced_function_is_what_is_measured_and_labelled(suite):
    suite.device(
        body="def pytest_roofline_function(item, name, fn):\n    return lambda: (fn(), DEVICE.work(3e-3))\n",
    )
    suite.run(body(f"{MEASURE})"))
    samples = suite.saved().measurements[0].samples
    assert (True, pytest.approx(4e-3, rel=1e-4)) == ("replaced" in samples.labels, samples.seconds[0])


def test_a_replaced_function_never_becomes_a_baseline(suite):
    suite.device(
        body="def pytest_roofline_function(item, name, fn):\n    return lambda: (fn(), DEVICE.work(3e-3))\n",
    )
    suite.run(body(f"{MEASURE})"))
    with pytest.raises(BadInput, match="replaced"):
        propose([suite.saved()], everything=True, accept_slower=True)


HOLDS = "lambda *_: (fake.allocate(3 * 2**20), fake.allocate(2**20), fake.allocate(-4 * 2**20), fake.work(1e-3))"
PEAK = f"roofline.measure({HOLDS}, work=WORK, peak_bytes=True"


def test_the_peak_of_a_call_is_in_what_measure_returns_and_in_the_run_file(suite):
    result = suite.run(body("fake.allocate(8 * 2**20)", f"assert {PEAK}).peak_bytes == 4 * 2**20"))
    result.assert_outcomes(passed=1)
    assert (suite.saved().measurements[0].peak_bytes, suite.lines("measurement")[0]["peak_bytes"]) == (4 * MIB,) * 2


def test_a_call_that_holds_nothing_has_a_peak_of_zero(suite):
    suite.run(body(f"{MEASURE}, peak_bytes=True)"))
    assert suite.saved().measurements[0].peak_bytes == 0


def test_a_peak_that_nobody_asked_for_is_unknown(suite):
    suite.run(body(f"roofline.measure({HOLDS}, work=WORK)"))
    assert suite.saved().measurements[0].peak_bytes is None


def test_a_peak_that_the_device_does_not_tell_is_unknown(suite):
    suite.device(body="DEVICE.peak_bytes = lambda call: None\n")
    suite.run(body(f"{PEAK})")).assert_outcomes(passed=1)
    assert suite.saved().measurements[0].peak_bytes is None


@pytest.mark.parametrize(("arguments", "more"), [("", 0), (", peak_bytes=False", 0), (", peak_bytes=True", 1)])
def test_the_peak_takes_one_call_that_is_not_timed(suite, arguments, more):
    suite.run(body(f"{MEASURE}{arguments})", "print('WORKS', fake.works)"), "-s")
    samples = suite.saved().measurements[0].samples
    timed = samples.warmup_iterations + samples.iterations * len(samples.seconds)
    suite.result.stdout.fnmatch_lines([f"*WORKS {timed + more}"])


def test_the_peak_is_taken_after_all_timing(suite):
    result = suite.run(
        body(
            "stamps = []",
            "roofline.measure(lambda: stamps.append(fake.stamps) or fake.work(1e-3), work=WORK, peak_bytes=True)",
            "assert stamps[-1] == fake.stamps > stamps[-2]",
        )
    )
    result.assert_outcomes(passed=1)


def test_what_the_peaks_call_left_is_verified_too(suite):
    result = suite.run(
        body(
            "order = []",
            "roofline.measure(lambda: order.append('call') or fake.work(1e-3), work=WORK, peak_bytes=True,"
            " verify=lambda: order.append('verify'))",
            "assert order.index('verify') == len(order) - 1",
        )
    )
    result.assert_outcomes(passed=1)


def test_argument_sets_are_no_part_of_the_peak(suite):
    suite.device("cache_bytes=4000")
    suite.run(body(f"{PEAK}, cache='rotate', make_args=lambda: fake.allocate(2**20) or ())"))
    assert suite.saved().measurements[0].peak_bytes == 4 * MIB


def test_a_call_that_fails_while_its_peak_is_taken_keeps_the_samples_and_marks_them(suite):
    suite.device(body="def peak(call):\n    raise RuntimeError('out of memory')\nDEVICE.peak_bytes = peak\n")
    suite.run(body(f"{PEAK})")).assert_outcomes(failed=1)
    (measurement,) = suite.saved().measurements
    assert (measurement.invalid, measurement.peak_bytes) == ("raised RuntimeError: out of memory", None)


HOLDING_FLUSH = """
import torch
import weakref

DEVICE.held = []

def flusher(size_bytes):
    buffer = torch.zeros(1000)
    DEVICE.held.append(weakref.ref(buffer))
    return lambda: buffer.zero_()

DEVICE.flusher = flusher
"""


@pytest.mark.parametrize("after", [0, 10, 40])
def test_the_flushs_buffer_is_released_before_the_next_test_after_an_exception(suite, after):
    suite.device(body=HOLDING_FLUSH)
    result = suite.run(
        f"AFTER = {after}\n"
        + OUT_OF_MEMORY.replace("work=WORK", "work=WORK, cache='flush'")
        + WHEN["body"].replace("HELD", "fake.held")
    )
    result.assert_outcomes(failed=1, passed=1)


def test_the_flushs_buffer_is_released_when_a_good_measurement_ends(suite):
    suite.device(body=HOLDING_FLUSH)
    result = suite.run(body(f"{MEASURE}, cache='flush')", "assert [reference() for reference in fake.held] == [None]"))
    result.assert_outcomes(passed=1)
