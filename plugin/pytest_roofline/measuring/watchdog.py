"""A question that may never be answered: asked in a thread that is left behind where it is not."""

import threading
from collections.abc import Callable


def within(seconds: float, question: Callable[[], float]) -> float:
    """The answer, if it comes in time.

    Raises:
        TimeoutError: it does not. The thread goes on waiting and ends with the process.
        Exception: whatever the question raises.
    """
    answers: list[float | BaseException] = []

    def ask() -> None:
        try:
            answers.append(question())
        except BaseException as error:  # Handed on to whoever waits.
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True, name="roofline-watchdog")
    thread.start()
    thread.join(seconds)
    if not answers:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]
