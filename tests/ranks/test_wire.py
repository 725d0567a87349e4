"""Arguments and results as bytes: plain data comes back as it was, and nothing else gets in or out."""

import dataclasses
import pickle
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks.tasks import Answer, FunctionRef, Task, World
from pytest_roofline.ranks.wire import decode, encode
from pytest_roofline.ranks.worlds import Rank

HASHABLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
PLAIN = st.recursive(
    HASHABLE | st.binary().map(bytearray) | st.sets(st.integers()) | st.frozensets(st.text()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=4)
    ),
    max_leaves=12,
)
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2),
)


def there_and_back(value):
    return decode(encode(value, "the result of rank 1"), "the result of rank 1")


def same(one, other):
    """Equal, with NaN equal to itself and True no 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or repr(one) == repr(other)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value):
    assert same(there_and_back(value), value)


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(DTYPES))
def test_a_tensor_keeps_its_shape_its_dtype_and_its_bytes(shape, dtype):
    own = torch.randint(0, 2, shape).to(dtype)
    back = there_and_back(own)
    assert (back.shape, back.dtype, back.device.type) == (own.shape, own.dtype, "cpu")
    assert torch.equal(back.reshape(-1).view(torch.uint8), own.reshape(-1).view(torch.uint8))


def test_a_tensor_comes_back_by_its_values_however_it_lies_in_memory():
    for value in (
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12)[::3],
        torch.arange(12.0).reshape(4, 3)[:1, 0],
        torch.ones(1).expand(3, 4),
        torch.nn.Parameter(torch.ones(3)),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1 + 2j]).conj().imag,
        torch.tensor([float("nan"), float("-inf"), -0.0]),
    ):
        back = there_and_back(value)
        assert torch.equal(torch.nan_to_num(back), torch.nan_to_num(value.detach())), value
    # What comes back can be written to.
    back += 1


class _Meter:
    name = "cpu"


def test_dtypes_shapes_ranks_and_records_of_ours_may_travel():
    rank = Rank.make(3, size=4, local_rank=3, host="n1", backend="gloo", meter=_Meter(), side=None)
    value = {"dtype": torch.bfloat16, "shape": torch.ones(2, 3).shape, "rank": rank}
    assert there_and_back(value) == {"dtype": torch.bfloat16, "shape": (2, 3), "rank": 3}
    assert type(there_and_back(rank)) is int
    task = Task(7, World("1.1", 2, "gloo", 600.0), FunctionRef("/f.py", "0" * 64, "f", "g"), b"arguments")
    assert there_and_back([task, Answer(7, "ok", b"value")]) == [task, Answer(7, "ok", b"value")]


@dataclasses.dataclass
class Foreign:
    """A record of somebody else's."""

    number: int = 1


def refused(value, **more):
    with pytest.raises(BadInput) as raised:
        encode(value, "the result of rank 1", **more)
    return str(raised.value)


def test_what_is_not_plain_or_too_large_is_refused_by_name():
    array = torch.ones(2).numpy()
    for value, named in (
        ({"times": [1, refused]}, "refused"), ([lambda: 1], "<lambda>"), (Foreign(), "Foreign"), (Foreign, "Foreign"),
        ({1, print}, "print"), ((x for x in "ab"), "generator"), (array, "numpy.ndarray"), ((array[0],), "float32"),
        (torch.device("cpu"), "torch.device"), (OrderedDict(a=1), "OrderedDict"), (ValueError("x"), "ValueError"),
        (torch, "module"), (torch.eye(3).to_sparse(), "torch.Tensor"), (torch.empty(3, device="meta"), "torch.Tensor"),
    ):  # fmt: skip
        told = refused(value)
        assert told.startswith("the result of rank 1 holds ")
        assert named in told.partition(";")[0], told
        assert told.endswith("; expected numbers, text, bytes, None, tuples, lists, sets, dicts, tensors and dtypes")
    for value in (
        bytes(2**20 + 1), [0.5] * 2**18, torch.zeros(2**18 + 1), [torch.zeros(2**17) for _ in range(3)],
        torch.ones(1).expand(2**40),
    ):  # fmt: skip
        assert "MiB or more; expected at most 1 MiB: reduce it on the rank, or write it to a file" in refused(
            value, most_bytes=2**20
        )
    assert decode(encode(torch.zeros(2**18 - 100), "x", most_bytes=2**20), "x").numel() == 2**18 - 100
    deep = []
    for _ in range(1_000_000):
        deep = [deep]
    assert "nested too deeply" in refused(deep)
    own = [1]
    own.append(own)
    back = there_and_back(own)
    assert back[1] is back


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
    for name in ("pool.Pool", "processes.os", "channel.connect", "worlds.Rank", "tasks.load"):
        module, _, attribute = f"pytest_roofline.ranks.{name}".rpartition(".")
        with pytest.raises(BadInput, match=r"names pytest_roofline"):
            decode(b"c" + module.encode() + b"\n" + attribute.encode() + b"\n.", "the answer")
    whole = encode({"times": [0.5, 1.5], "sum": torch.ones(3), "text": "é"}, "x")
    for cut in range(len(whole)):
        with pytest.raises(BadInput, match=r"^the answer cannot be read: "):
            decode(whole[:cut], "the answer")
