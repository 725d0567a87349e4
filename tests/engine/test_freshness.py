"""Whether calls do their work: the known cheats of kernel competitions are not believed, and honest functions are."""

import functools
import threading
import time

import pytest
import torch

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.errors import BadInput, NoRoom
from pytest_roofline.engine.freshness import FreshnessCheck, Refill, refill_of

ROOM = 2**30


def why(fn, *arguments, calls=5, free_bytes=ROOM):
    """Why calls of a function are not believed after so many of them."""
    look = FreshnessCheck(fn, [arguments], before=True)
    for _ in range(calls):
        fn(*arguments)
    return look.why_stale(fn, lambda: None, lambda: free_bytes)


def randn(*shape, **more):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(**more)


UNSEEN = {"out": torch.empty(8, 8)}
HELD, INTO = randn(8, 8), torch.zeros(8, 8)


def of_later(later=False):
    """What a function names may be set after it; until then its cell is empty."""

    def fn(x):
        return unset if later else x * 2

    if later:
        unset = randn(8)
    return fn


def nothing_seen(a, b):
    torch.mm(a, b, out=UNSEEN["out"])


def copies(to, source):
    to.copy_(source)


def step(weight):
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], lr=0.1).step()


def halves(x):
    """Ends with some values only."""
    for _ in range(1000):
        if x == 1:
            return
        x = x / 2
    pytest.fail("the call would not end")


def pair():
    return torch.zeros(8), torch.ones(8)


HONEST = {
    "product": (torch.mm, randn(8, 8), randn(8, 8)),
    "into an argument": (
        lambda a, b, c: torch.mm(a, b, out=c),
        randn(8, 8),
        randn(8, 8),
        torch.empty(8, 8),
    ),
    "into what nobody sees": (nothing_seen, randn(8, 8), randn(8, 8)),
    "copy": (lambda to, source: to.copy_(source), torch.zeros(1000), randn(1000)),
    "in place": (lambda x: x.add_(1), torch.zeros(100)),
    "overwritten": (lambda x: x.zero_(), torch.zeros(100)),
    "sum as a number": (lambda x: x.sum().item(), torch.ones(100)),
    "scaled away": (lambda x: torch.nn.functional.layer_norm(x, (16,)), randn(4, 16)),
    "the same of all constants": (lambda x: torch.softmax(x, -1), torch.ones(4, 4)),
    "yes or no": (torch.allclose, randn(100), randn(100)),
    "whole numbers": (lambda x: x + 1, torch.arange(100)),
    "refuses other values": (lambda x: torch.linalg.cholesky(x), torch.eye(8)),
    "bfloat16": (torch.mm, randn(8, 8, dtype=torch.bfloat16), randn(8, 8, dtype=torch.bfloat16)),
    "complex": (lambda x: x * x, torch.ones(8, dtype=torch.complex64)),
    "a transposed view": (lambda x: x * 2, randn(8, 4).t()),
    "an expanded view": (lambda x: x * 2, randn(1, 4).expand(8, 4)),
    "parts of one tensor": (torch.mm, *randn(16, 8).split(8)),
    "in a mapping": (lambda x: {"out": x["in"] * 2}, {"in": randn(8)}),
    "a step of an optimizer": (step, torch.nn.Parameter(randn(100))),
    "a name that is not set yet": (of_later(), randn(8)),
    "of its own": (lambda: torch.mm(HELD, HELD),),
    "of its own, into what it holds": (lambda: torch.mm(HELD, HELD, out=INTO).numel(),),
    "a partial": (functools.partial(torch.mm, randn(8, 8), mat2=randn(8, 8)),),
    "idempotent in place": (lambda x, y: x.relu_(), randn(100), randn(100)),
    "clamped in place": (
        lambda x, low, high: x.clamp_(low, high),
        randn(100),
        -torch.ones(100),
        torch.ones(100),
    ),
    "a running minimum": (
        lambda x, low: torch.minimum(x, low, out=low),
        randn(100) + 50,
        torch.full((100,), 1e9),
    ),
    "a running maximum": (
        lambda x, top: torch.maximum(x, top, out=top),
        randn(100) - 50,
        torch.full((100,), -1e9),
    ),
    "too little to be added": (
        lambda x, y: x.add_(y, alpha=1e-5),
        randn(1000).bfloat16(),
        randn(1000).bfloat16(),
    ),
    "seeded": (lambda x: (torch.manual_seed(0), torch.rand_like(x))[1], randn(100)),
    "from whole numbers alone": (lambda x, room: x.sort().values, torch.arange(100), randn(100)),
    "a row of a large cache": (
        lambda cache, row: cache[90000].copy_(row),
        torch.zeros(100000, 64),
        randn(64),
    ),
    "until it converges": (halves, torch.tensor(8.0)),
    "a share, whatever the scale": (
        lambda x, y: ((x > 0) == (y > 0)).float().mean().item(),
        randn(100),
        randn(100),
    ),
    "an address": (lambda x: x.data_ptr(), randn(100)),
    "another number each time": (lambda x: x.argmax().item() + time.perf_counter(), randn(100)),
    "of a model": (lambda model, x: model(x).argmax(), torch.nn.Linear(8, 8), randn(4, 8)),
    "of a result with a past": (lambda x: x.sign(), randn(100).requires_grad_() * 1),
    "made in inference mode": (torch.inference_mode()(copies), *torch.inference_mode()(pair)()),
    "to be conjugated": (
        torch.mm,
        randn(8, 8, dtype=torch.cfloat),
        randn(8, 8, dtype=torch.cfloat).mH,
    ),
    "float4": (
        lambda x, y: y * 2,
        torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        randn(8),
    ),
}


@pytest.mark.usefixtures("torch_compiler")
def test_an_honest_function_is_believed():
    for case in HONEST:
        assert why(*HONEST[case]) == "", case


def remembers(key):
    """Makes a product that is computed once for each key of its arguments."""

    def make():
        known = {}
        return lambda a, b: (
            known[key(a, b)] if key(a, b) in known else known.setdefault(key(a, b), torch.mm(a, b))
        )

    return make


def skips(every):
    """Makes a product that is computed in every so many-th call; the others return what is there."""

    def make():
        made, out = [0], torch.empty(8, 8)

        def fn(a, b):
            made[0] += 1
            return torch.mm(a, b, out=out) if made[0] % every == 1 else out

        return fn

    return make


def leaves_stale():
    done = []
    return lambda a, b, out: done or done.append(torch.mm(a, b, out=out))


class LeavesToThreads:
    """A product that a thread makes when the gate opens, as work on another stream may take its time."""

    def __init__(self):
        self.gate, self.threads = threading.Event(), []

    def __call__(self, a, b, out):
        self.threads.append(
            threading.Thread(target=lambda: self.gate.wait() and torch.mm(a, b, out=out))
        )
        self.threads[-1].start()

    def finish(self):
        """Let all work that was left be done."""
        self.gate.set()
        for thread in self.threads:
            thread.join()
        self.gate.clear()


def holds_all():
    """Without an argument: what is read and what is remembered are both the function's own."""
    a, out = randn(8, 8), None

    def fn():
        nonlocal out
        out = torch.mm(a, a) if out is None else out
        return out

    return fn


def holds_in_a_list():
    a, out = randn(8, 8), []
    return lambda: (out or out.append(torch.mm(a, a)) or out)[0]


def holds_what_it_writes():
    a, out, done = randn(8, 8), torch.zeros(8, 8), []

    def fn():
        if not done:
            done.append(torch.mm(a, a, out=out))

    return fn


def gives_copies(key, give):
    """Makes a product that is computed once for each key, and of which every call gives a copy."""

    def make():
        product = remembers(key)()
        return lambda a, b, *out: give(product(a, b), *out)

    return make


def by_id(a, b):
    return id(a), id(b)


def by_version(a, b):
    return a.data_ptr(), b.data_ptr(), a._version, b._version


COPIES = {
    "copies, by object": (gives_copies(by_id, torch.clone), 2),
    "copies, by address and version": (gives_copies(by_version, torch.clone), 2),
    "copies into an argument": (gives_copies(by_id, lambda known, out: copies(out, known)), 3),
    "a number": (gives_copies(by_id, lambda known: known.sum().item()), 2),
}
CHEATS = {
    "holds what it reads and remembers": (holds_all, 0),
    "holds what it reads, and remembers in a list": (holds_in_a_list, 0),
    "holds what it reads and what it wrote once": (holds_what_it_writes, 0),
    "remembers by address and version": (
        remembers(lambda a, b: (a.data_ptr(), a._version, b._version)),
        2,
    ),
    "remembers by object": (remembers(lambda a, b: (id(a), id(b))), 2),
    "remembers by content": (remembers(lambda a, b: str(a.tolist() + b.tolist())), 2),
    "works in every tenth call": (skips(10), 2),
    "leaves what the first call wrote": (leaves_stale, 3),
}


STALE = "a call did not write its output"


def test_a_cheat_is_not_believed():
    for case in CHEATS:
        make, count = CHEATS[case]
        for calls in (5, 6):
            matrices = [randn(8, 8), randn(8, 8), torch.zeros(8, 8)][:count]
            assert why(make(), *matrices, calls=calls).startswith(STALE), calls


def test_work_that_is_left_to_a_thread_is_not_believed():
    fn, matrices = LeavesToThreads(), (randn(8, 8), randn(8, 8), torch.zeros(8, 8))
    look = FreshnessCheck(fn, [matrices], before=True)
    for _ in range(5):
        fn(*matrices)
    fn.finish()
    try:
        assert look.why_stale(fn, lambda: None, lambda: ROOM).startswith(STALE)
    finally:
        fn.finish()


def test_the_arguments_hold_afterwards_what_a_call_makes_of_their_first_values():
    x, out = randn(1000, dtype=torch.bfloat16), torch.zeros(1000, dtype=torch.bfloat16)
    first = x.clone()
    assert why(lambda x, out: torch.mul(x, 2, out=out), x, out) == ""
    assert torch.equal(x, first)
    assert torch.equal(out, 2 * first)


def test_whoever_gives_copies_of_what_he_remembers_is_not_believed():
    for case in COPIES:
        make, count = COPIES[case]
        given = [randn(8, 8), randn(8, 8) + 1, torch.zeros(8, 8)][:count]
        first = [one.clone() for one in given[:2]]
        assert why(make(), *given).startswith(
            "a call returned its earlier result although the values of its arguments had changed"
        )
        assert [torch.equal(*pair) for pair in zip(given, first, strict=False)] == [True, True], (
            case
        )


def test_every_refill_gives_values_of_the_same_kind_that_were_not_there_before():
    x, ones, kept = randn(1000).abs(), torch.ones(1000), torch.arange(10)
    refill, seen = Refill((x, [ones], {"at": kept})), set()
    for _ in range(50):
        refill()
        seen.add(str((x.tolist(), ones.tolist())))
        assert 0 <= x.min() <= x.max() <= 5
        assert 0 < ones.min() < ones.max() <= 1
    assert len(seen) == 50
    assert kept.tolist() == list(range(10))


def test_sets_are_looked_at_or_refilled_where_there_is_room_for_what_is_kept_of_each():
    make, _ = COPIES["copies, by object"]
    for free_bytes, seen in [(100, False), (1023, False), (1024, True)]:
        assert bool(why(make(), randn(8, 8), randn(8, 8), free_bytes=free_bytes)) == seen, (
            free_bytes
        )
    sets = [(randn(1000),) for _ in range(100)]
    refill_of(torch.neg, sets, 103 * 4000)(99)
    assert not torch.equal(sets[99][0], sets[98][0])
    with pytest.raises(
        NoRoom, match=r"needs 412 kB of free memory to change all arguments, found 408 kB"
    ):
        refill_of(torch.neg, sets, 102 * 4000)


def test_a_refill_reaches_what_was_made_in_inference_mode_and_leaves_what_cannot_be_converted():
    made, packed = torch.inference_mode()(pair)()[1], torch.zeros(8, dtype=torch.uint8)
    refill_of(torch.neg, [(made, packed.view(torch.float4_e2m1fn_x2))], ROOM)(0)
    assert made.min() < 1
    assert not packed.any()
    with pytest.raises(
        BadInput, match="refill=True found no floating-point tensor among the arguments"
    ):
        refill_of(torch.neg, [(torch.arange(4),)], ROOM)


HEAD = "import torch\nX = torch.rand(1000) + 1\nknown = dict()\n\n\n"
REMEMBERS = (
    HEAD + "def fn(x, fake):\n"
    "    key = {key}\n"
    "    if key not in known:\n"
    "        fake.work(1e-3)\n"
    "        known[key] = x * 2\n"
    "    fake.work(1e-5)\n"
    "    return known[key]\n\n\n"
    "def test_it(roofline, fake):\n"
    "    first = X.clone()\n"
    "    roofline.measure(fn, X, fake, work=WORK{more})\n"
    "    assert torch.equal(X, first) or {changed}\n"
)


def test_what_is_remembered_or_left_to_another_stream_makes_a_measurement_invalid_where_anybody_looks(
    suite,
):
    suite.run(REMEMBERS.format(key="id(x)", more="", changed="False"), "--roofline-save=seen")
    suite.run(
        REMEMBERS.format(key="id(x)", more=", refill=False", changed="False"),
        "--roofline-save=unseen",
    )
    suite.run(
        HEAD + "def holds(roofline, fake):\n"
        "    a = torch.rand(8, 8)\n"
        "    def fn():\n"
        "        fake.work(1e-3)\n"
        "        return known.setdefault(0, a @ a) if 0 not in known else known[0]\n\n"
        "    roofline.measure(fn, work=WORK)\n\n"
        "def beside(roofline, fake, seconds):\n"
        "    roofline.measure(lambda: (fake.work(1e-6), fake.work_beside(seconds))[0], work=WORK)\n\n"
        "def test_holds(roofline, fake): holds(roofline, fake)\n"
        "def test_long(roofline, fake): beside(roofline, fake, 1e-3)\n"
        "def test_short(roofline, fake): beside(roofline, fake, 1e-5)\n"
        "def test_bad(roofline, fake): roofline.measure(lambda: fake.work(1e-3), work=WORK, refill='yes')\n",
        "--roofline-save=held",
    )
    suite.result.stdout.fnmatch_lines(["*refill is 'yes'; expected one of None, True, False*"])
    runs = {
        name: read_run(suite.pytester.path / f".roofline/runs/{name}.jsonl")
        for name in ("seen", "unseen", "held")
    }
    assert runs["unseen"].measurements[0].invalid == ""
    for name in ("seen", "held"):
        assert runs[name].measurements[0].invalid.startswith(STALE), name
    for beside in runs["held"].measurements[1:]:
        assert "the device still worked after the timed calls" in beside.invalid
        assert "torch.cuda.current_stream().wait_stream(other)" in beside.invalid


def test_with_other_values_in_every_sample_what_is_remembered_by_content_takes_its_time(suite):
    """A copy of what was remembered has memory of its own, as an honest result has."""
    for refill, median_s in [(None, 1e-5), (True, 1.01e-3)]:
        text = REMEMBERS.format(
            key="tuple(x.tolist())", more=f", refill={refill}", changed=str(bool(refill))
        )
        suite.run(
            text.replace("return known[key]", "return known[key].clone()"),
            f"--roofline-save=r{refill}",
        )
        (measurement,) = read_run(
            suite.pytester.path / f".roofline/runs/r{refill}.jsonl"
        ).measurements
        assert (measurement.invalid, measurement.median_s) == ("", pytest.approx(median_s)), refill
        assert ("refilled" in measurement.samples.achieved) == bool(refill)
        assert refill is None or measurement.samples.iterations == 1


def test_in_a_rotation_the_set_that_comes_next_is_refilled(suite):
    suite.run(
        "import torch\nseen, again = {}, []\n\n\n"
        "def fn(x, fake):\n"
        "    fake.work(1e-3)\n"
        "    again.append(seen.get(id(x)) == x.tolist())\n"
        "    seen[id(x)] = x.tolist()\n\n\n"
        "def test_it(roofline, fake):\n"
        "    work = Work(read_bytes=2**23)\n"
        "    roofline.measure(fn, make_args=lambda: (torch.rand(8), fake), work=work, cache='rotate', refill=True)\n"
        # Before the samples, a few calls find out how to time them.
        "    assert len(seen) > 10 and len(again) > 100 and sum(again) < 5\n"
    ).assert_outcomes(passed=1)
