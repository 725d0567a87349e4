"""Arguments and results as bytes: plain data comes back as it was, and nothing else gets in or out."""

import dataclasses
import pickle
from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks.context import Rank
from pytest_roofline.ranks.functions import FunctionRef
from pytest_roofline.ranks.messages import Answer, Task
from pytest_roofline.ranks.wire import decode, encode
from pytest_roofline.ranks.worlds import World

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


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


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


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.arange(12.0).reshape(3, 4).T, id="transposed"),
        pytest.param(torch.arange(12)[::3], id="strided"),
        pytest.param(torch.arange(12.0).reshape(4, 3)[:1, 0], id="one element of a column"),
        pytest.param(torch.ones(1).expand(3, 4), id="expanded"),
        pytest.param(torch.ones(3, requires_grad=True), id="with gradient"),
        pytest.param(torch.nn.Parameter(torch.ones(3)), id="parameter"),
        pytest.param(torch.tensor([1 + 2j]).conj(), id="lazily conjugate"),
        pytest.param(torch.tensor([1 + 2j]).conj().imag, id="lazily negative"),
        pytest.param(torch.tensor([float("nan"), float("-inf"), -0.0]), id="not finite"),
    ],
)
def test_a_tensor_comes_back_by_its_values_however_it_lies_in_memory(value):
    assert torch.equal(torch.nan_to_num(there_and_back(value)), torch.nan_to_num(value.detach()))


def test_what_comes_back_can_be_written_to():
    back = there_and_back(torch.zeros(3))
    back += 1

    assert back.tolist() == [1, 1, 1]


def test_dtypes_shapes_and_ranks_may_travel():
    rank = Rank.make(3, size=4, local_rank=3, host="n1", backend="gloo", meter=_Meter(), side=None)
    value = {"dtype": torch.bfloat16, "shape": torch.ones(2, 3).shape, "rank": rank}

    assert there_and_back(value) == {"dtype": torch.bfloat16, "shape": (2, 3), "rank": 3}
    assert type(there_and_back(rank)) is int


class _Meter:
    name = "cpu"


def test_records_of_ours_may_travel():
    function = FunctionRef("/f.py", "0" * 64, "f", "g")
    task = Task(7, World("1.1", 2, "gloo", 600.0), function, b"arguments")

    assert there_and_back([task, Answer(7, "ok", b"value")]) == [task, Answer(7, "ok", b"value")]


@dataclasses.dataclass
class Foreign:
    """A record of somebody else's."""

    number: int = 1


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param({"times": [1, test_what_comes_back_can_be_written_to]}, r"can_be_written_to at \['times'\]\[1\]"),
        pytest.param([lambda: 1], r"<lambda> at \[0\]"),
        pytest.param(Foreign(), "Foreign"),
        pytest.param(Foreign, "Foreign"),
        pytest.param({1, print}, "print"),
        pytest.param((x for x in "ab"), "generator"),
        pytest.param(torch.ones(2).numpy(), r"numpy\.ndarray"),
        pytest.param((torch.ones(2).numpy()[0],), r"numpy\.float32 at \[0\]"),
        pytest.param(torch.device("cpu"), r"torch\.device"),
        pytest.param(OrderedDict(a=1), "OrderedDict"),
        pytest.param(ValueError("x"), "ValueError"),
        pytest.param(torch, "module"),
    ],
)
def test_what_is_not_plain_is_refused_by_name_and_place(value, named):
    with pytest.raises(BadInput, match=rf"^the result of rank 1 holds .*{named}.*expected numbers, text"):
        encode(value, "the result of rank 1")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(torch.empty(3, device="meta"), id="without data"),
    ],
)
def test_a_tensor_that_is_no_plain_one_is_refused(value):
    with pytest.raises(BadInput, match=r"the result of rank 1 holds"):
        encode(value, "the result of rank 1")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(bytes(2**20 + 1), id="bytes"),
        pytest.param([0.5] * 2**18, id="numbers"),
        pytest.param(torch.zeros(2**18 + 1), id="tensor"),
        pytest.param([torch.zeros(2**17) for _ in range(3)], id="tensors"),
        pytest.param(torch.ones(1).expand(2**40), id="expanded tensor"),
    ],
)
def test_what_is_too_large_is_refused_with_a_way_out(value):
    with pytest.raises(BadInput, match=r"^the result of rank 1 is \d+ MiB or more; expected at most 1 MiB: .*file"):
        encode(value, "the result of rank 1", most_bytes=2**20)


def test_what_just_fits_is_taken():
    data = encode(torch.zeros(2**18 - 100), "x", most_bytes=2**20)

    assert decode(data, "x").numel() == 2**18 - 100


def test_what_contains_itself_or_is_nested_without_end_does_no_harm():
    own = [1]
    own.append(own)
    back = there_and_back(own)

    assert back[1] is back
    with pytest.raises(BadInput, match="nested too deeply"):
        encode(nested(1_000_000), "x")


@pytest.mark.parametrize("callee", [eval, exec, open, getattr, __import__, torch.load, pickle.loads, Foreign])
def test_bytes_that_name_code_are_refused_before_it_runs(callee):
    class Evil:
        def __reduce__(self):
            return callee, ("1",)

    with pytest.raises(BadInput, match=rf"^the answer names .*{callee.__name__}; expected"):
        decode(pickle.dumps(Evil()), "the answer")


@pytest.mark.parametrize("name", ["pool.Pool", "processes.os", "channel.connect", "context.Rank", "functions.load"])
def test_bytes_that_name_something_of_ours_that_is_no_record_are_refused(name):
    module, _, attribute = f"pytest_roofline.ranks.{name}".rpartition(".")
    data = b"c" + module.encode() + b"\n" + attribute.encode() + b"\n."

    with pytest.raises(BadInput, match=r"names pytest_roofline"):
        decode(data, "the answer")


@given(st.data())
def test_bytes_that_were_cut_off_are_refused(data):
    whole = encode({"times": [0.5, 1.5], "sum": torch.ones(3), "text": "é"}, "x")
    cut = data.draw(st.integers(0, len(whole) - 1))

    with pytest.raises(BadInput, match=r"^the answer cannot be read: "):
        decode(whole[:cut], "the answer")
