"""Questions that may never be answered."""

import threading

import pytest

from pytest_roofline.engine.blocks import within

PATIENT_S = 60.0


def test_an_answer_that_comes_is_handed_on():
    assert within(PATIENT_S, lambda: 1.5) == 1.5


@pytest.mark.parametrize("error", [RuntimeError("not recorded"), KeyboardInterrupt()])
def test_an_error_is_raised_where_the_question_was_asked(error):
    def question():
        raise error

    with pytest.raises(type(error)) as caught:
        within(PATIENT_S, question)
    assert caught.value is error


@pytest.fixture
def silence():
    """A question without an answer until the test is over."""
    over = threading.Event()
    yield lambda: float(over.wait())
    over.set()


def test_a_question_without_an_answer_is_given_up(silence):
    with pytest.raises(TimeoutError, match=r"no answer within 0\.001 s"):
        within(0.001, silence)


def test_whoever_never_answers_does_not_keep_the_process_alive(silence):
    already = threading.enumerate()  # Other tests leave such threads behind too.
    with pytest.raises(TimeoutError):
        within(0.001, silence)
    left = [thread for thread in threading.enumerate() if thread not in already]
    assert [thread.daemon for thread in left if thread.name == "roofline-watchdog"] == [True]


def test_a_question_is_asked_in_another_thread():
    asked = []
    within(PATIENT_S, lambda: asked.append(threading.current_thread()) or 0.0)
    assert asked[0] is not threading.current_thread()
