"""Calling a function with one argument set after the other."""

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.engine.calls import CallSequence


def recorded(names):
    """Calls of a function that notes its argument, and its notes."""
    called = []
    return CallSequence(called.append, [(name,) for name in names]), called


def test_the_sets_take_turns_however_calls_are_batched():
    for batches in [[7], [1] * 7, [3, 4], [2, 0, 5]]:
        calls, called = recorded("abc")
        for count in batches:
            calls(count)
        assert called == list("abcabca"), batches


def test_the_first_call_takes_the_first_set():
    calls, called = recorded("abc")
    calls.first()
    calls(1)
    assert called == ["a", "b"]


def test_the_first_call_is_counted():
    calls, _ = recorded("abc")
    calls.first()
    calls(4)
    assert calls.made == 5


def test_only_sets_that_were_called_with_are_touched():
    calls, _ = recorded("abc")
    calls(2)
    assert list(calls.touched) == [("a",), ("b",)]


def test_every_set_is_touched_after_a_whole_turn():
    calls, _ = recorded("abc")
    calls(5)
    assert list(calls.touched) == [("a",), ("b",), ("c",)]


def test_a_restart_begins_with_the_first_set():
    calls, called = recorded("abc")
    calls(2)
    calls.restart()
    calls(1)
    assert called == ["a", "b", "a"]


def test_nothing_is_touched_after_a_restart():
    calls, _ = recorded("abc")
    calls(2)
    calls.restart()
    assert list(calls.touched) == []


def test_sets_that_were_replaced_in_place_are_called_with():
    called, sets = [], [("old",)]
    calls = CallSequence(called.append, sets)
    calls(1)
    sets[0] = ("new",)
    calls.restart()
    calls(1)
    assert called == ["old", "new"]


def test_an_async_function_is_refused_at_its_first_call():
    async def fn():
        """Does its work only when awaited."""

    with pytest.raises(BadInput, match="the measured function returned coroutine, which does its work only when await"):
        CallSequence(fn, [()]).first()


def test_an_async_function_hidden_in_another_is_refused():
    class Promise:
        def __await__(self):
            yield

    with pytest.raises(BadInput, match="returned Promise"):
        CallSequence(Promise, [()]).first()


def test_an_exception_of_the_function_is_raised_as_it_is():
    error = RuntimeError("out of memory")

    def fn():
        raise error

    with pytest.raises(RuntimeError) as caught:
        CallSequence(fn, [()])(1)
    assert caught.value is error
