"""What travels to ranks and back: functions by file and name, and plain data as bytes, and nothing else."""

import dataclasses
import functools
import hashlib
import importlib.util
import pickle
import socket
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks.tasks import (
    Answer,
    FunctionRef,
    Task,
    World,
    decode,
    encode,
    load,
    reference,
)
from pytest_roofline.ranks.worlds import Rank

TEXT = "def twice(rank):\n    return 2 * rank\n"
FUNCTIONS = """
import functools
def plain(rank): return rank
def wrapping(fn): return functools.wraps(fn)(lambda rank: fn(rank))
@wrapping
def decorated(rank): return rank
hidden, again = plain, None
class Holder:
    @staticmethod
    def static(rank): return rank
    def method(self, rank): return rank
async def coroutine(rank): return rank
def generator(rank): yield rank
def closing(held):
    def inner(rank): return rank + held
    return inner
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module and says how it is referred to; all modules of these names are forgotten afterwards."""

    def written(text=TEXT, file="rank_module.py", module="rank_module_of_a_test", name="twice"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return FunctionRef(str(path), hashlib.sha256(text.encode()).hexdigest(), module, name)

    kept = dict(sys.modules)
    yield written
    for name in set(sys.modules) - set(kept):
        del sys.modules[name]


def imported(ref):
    spec = importlib.util.spec_from_file_location(ref.module, ref.file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[ref.module] = module
    spec.loader.exec_module(module)
    return module


def refused(call, *arguments, **more):
    with pytest.raises(BadInput) as raised:
        call(*arguments, **more)
    return str(raised.value)


def test_a_function_of_a_module_is_found_again_and_what_no_process_can_find_is_refused(
    write, tmp_path, monkeypatch
):
    own = imported(write(FUNCTIONS, module="functions_of_a_test"))
    for fn in (own.plain, own.decorated, own.Holder.static):
        assert load(reference(fn))(3) == 3
    typed = type(sys)("typed_in_by_hand")
    exec("def fn(rank): return rank", vars(typed))
    monkeypatch.setitem(sys.modules, "typed_in_by_hand", typed)
    gone = imported(write(file="gone.py")).twice
    (tmp_path / "gone.py").unlink()
    for fn, why in (
        (lambda rank: rank, "<lambda> is not a function at the top of a module"),
        (own.closing(3), "inner is not a function at the top of a module"),
        (functools.partial(own.plain, 1), "is not a function at the top of a module"),
        (own.Holder().method, "Holder.method is not a function at the top of a module"),
        (own.Holder, "Holder is not a function"),
        (len, "len is not a function"),
        (3, "3 is not a function"),
        (own.coroutine, "is async or a generator"),
        (own.generator, "is async or a generator"),
        (own.decorated.__closure__[0].cell_contents, "is not the given function"),
        (typed.fn, "typed_in_by_hand> cannot be read"),
        (gone, "gone.py cannot be read"),
    ):
        assert why in refused(reference, fn), why


def test_a_file_that_is_not_the_controllers_is_refused_by_the_name_of_the_host(write, tmp_path):
    ref, host = write(), socket.gethostname()
    told = refused(load, FunctionRef(ref.file, "0" * 64, ref.module, ref.name))
    assert (
        f"on {host} is another version than the controller's (SHA-256 {ref.sha256[:12]}…, expected 000000"
        in told
    )
    told = refused(load, FunctionRef(str(tmp_path / "none.py"), "0" * 64, "none", "fn"))
    assert f"none.py cannot be read on {host}: No such file" in told
    assert "has no function thrice" in refused(load, write(name="thrice"))


def test_a_module_is_loaded_once_anew_when_its_file_has_changed_and_never_half(write, monkeypatch):
    counting = "seen = []\ndef count(rank):\n    seen.append(rank)\n    return len(seen)\n"
    ref = write(counting, name="count")
    assert [load(ref)(0), load(ref)(0)] == [1, 2]
    before, after = load(write()), load(write(TEXT.replace("2 *", "20 *")))
    # Two files of one module name do not shadow each other.
    other = load(write(TEXT.replace("2 *", "3 *"), file="b/same.py"))
    assert [before(1), after(1), other(1)] == [2, 20, 3]
    # A script is loaded without being run as one.
    main = sys.modules["__main__"]
    ref = write(
        TEXT + "if __name__ == '__main__':\n    raise SystemExit('the script was run')\n",
        file="script.py",
    )
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert load(FunctionRef(ref.file, ref.sha256, "__main__", "twice"))(2) == 4
    assert sys.modules["__main__"] is main
    ref = write("import no_such_module_anywhere\n", file="broken.py")
    for _ in range(2):
        with pytest.raises(ImportError, match="no_such_module_anywhere"):
            load(ref)
    assert ref.module not in sys.modules


# Data.

HASHABLE = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers()
)
PLAIN = st.recursive(
    HASHABLE
    | st.binary().map(bytearray)
    | st.sets(st.integers(), max_size=1)
    | st.frozensets(st.text(), max_size=1),
    lambda inner: st.lists(inner, max_size=4).flatmap(
        lambda row: st.sampled_from([row, tuple(row), {"key": row}])
    ),
    max_leaves=12,
)
DTYPES = (
    torch.bfloat16,
    torch.float32,
    torch.complex64,
    torch.bool,
    torch.int8,
    torch.int64,
    torch.float8_e4m3fn,
)


def there_and_back(value):
    return decode(encode(value, "the result of rank 1"), "the result of rank 1")


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value):
    # By its text, in which NaN is equal to itself and True no 1.
    assert repr(there_and_back(value)) == repr(value)


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(DTYPES))
def test_a_tensor_keeps_its_shape_its_dtype_and_its_bytes(shape, dtype):
    own = torch.randint(0, 2, shape).to(dtype)
    back = there_and_back(own)
    assert (back.shape, back.dtype, back.device.type) == (own.shape, own.dtype, "cpu")
    assert torch.equal(back.reshape(-1).view(torch.uint8), own.reshape(-1).view(torch.uint8))


def test_tensors_however_they_lie_in_memory_dtypes_ranks_and_records_of_ours_may_travel():
    for value in (
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0).reshape(4, 3)[:1, 0],
        torch.ones(1).expand(3, 4),
        torch.nn.Parameter(torch.ones(3)),
        torch.tensor([1 + 2j]).conj().imag,
    ):
        back = there_and_back(value)
        assert torch.equal(back, value.detach()), value
        # What comes back can be written to.
        back += 1
    rank = Rank.make(
        3, size=4, local_rank=3, host="n1", backend="gloo", meter=SimpleMeter(), side=None
    )
    value = {"dtype": torch.bfloat16, "shape": torch.ones(2, 3).shape, "rank": rank}
    assert there_and_back(value) == {"dtype": torch.bfloat16, "shape": (2, 3), "rank": 3}
    assert type(there_and_back(rank)) is int
    task = Task(
        7, World("1.1", 2, "gloo", 600.0), FunctionRef("/f.py", "0" * 64, "f", "g"), b"arguments"
    )
    assert there_and_back([task, Answer("ok", b"value")]) == [task, Answer("ok", b"value")]
    own = [1]
    own.append(own)
    back = there_and_back(own)
    assert back[1] is back


class SimpleMeter:
    name = "cpu"


@dataclasses.dataclass
class Foreign:
    """A record of somebody else's."""

    number: int = 1


def test_what_is_not_plain_or_too_large_is_refused_by_name():
    for value, named in (
        ({"times": [1, refused]}, "refused"), ([lambda: 1], "<lambda>"), (Foreign(), "Foreign"), ({1, print}, "print"),
        (torch.ones(2).numpy(), "numpy.ndarray"), (torch.device("cpu"), "torch.device"),
        (torch.eye(3).to_sparse(), "torch.Tensor"), (torch.empty(3, device="meta"), "torch.Tensor"),
    ):  # fmt: skip
        told = refused(encode, value, "the result of rank 1")
        assert told.startswith("the result of rank 1 holds ")
        assert named in told.partition(";")[0], told
        assert told.endswith(
            "; expected numbers, text, bytes, None, tuples, lists, sets, dicts, tensors and dtypes"
        )
    for value in (
        bytes(2**20 + 1),
        [torch.zeros(2**17) for _ in range(3)],
        torch.ones(1).expand(2**40),
    ):
        told = refused(encode, value, "x", most_bytes=2**20)
        assert (
            "MiB or more; expected at most 1 MiB; reduce the data on the rank, or write the data to a file"
            in told
        )
    deep = []
    for _ in range(1_000_000):
        deep = [deep]
    assert "nested too deeply" in refused(encode, deep, "x")


def test_bytes_that_name_code_or_are_damaged_are_refused_before_anything_runs():
    class Evil:
        def __init__(self, callee):
            self.callee = callee

        def __reduce__(self):
            return self.callee, ("1",)

    for callee in (eval, exec, open, getattr, __import__, torch.load, pickle.loads, Foreign):
        with pytest.raises(BadInput, match=rf"^the answer names .*{callee.__name__}; expected"):
            decode(pickle.dumps(Evil(callee)), "the answer")
    # Nor may they name anything of ours but records.
    for name in ("pool.Pool", "local.os", "channel.connect", "worlds.Rank", "tasks.load"):
        module, _, attribute = f"pytest_roofline.ranks.{name}".rpartition(".")
        with pytest.raises(BadInput, match=r"names pytest_roofline"):
            decode(b"c" + module.encode() + b"\n" + attribute.encode() + b"\n.", "the answer")
    whole = encode({"times": [0.5, 1.5], "sum": torch.ones(3), "text": "é"}, "x")
    for cut in range(len(whole)):
        with pytest.raises(BadInput, match=r"^the answer cannot be read: "):
            decode(whole[:cut], "the answer")
