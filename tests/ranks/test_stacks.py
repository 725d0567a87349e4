"""Where a stuck rank is, read from real stacks and from stacks as torch leads to them."""

import faulthandler
import tempfile
import threading
from pathlib import Path

import pytest
import torch

import pytest_roofline.ranks
from pytest_roofline.ranks.blame import main_frames, main_text, position

OURS = Path(pytest_roofline.ranks.__file__).parent
TORCH = Path(torch.__file__).parent
C10D = TORCH / "distributed/distributed_c10d.py"
SERVE = (
    (OURS / "rank.py", "_result"),
    (OURS / "rank.py", "_do"),
    (OURS / "rank.py", "serve"),
    (OURS / "rank.py", "main"),
    ("<frozen runpy>", "_run_module_as_main"),
)
LISTEN = ((OURS / "rank.py", "_listen"), (threading.__file__, "run"), (threading.__file__, "_bootstrap"))


def thread(*frames, current=False):
    """One thread of a dump; frames are (file, name), innermost first, each at line 12."""
    head = "Current thread" if current else "Thread"
    lines = [f'  File "{file}", line 12 in {name}' for file, name in frames]
    return "\n".join([f"{head} 0x00007f0123456789 (most recent call first):", *lines, ""])


def dump(*frames):
    """A rank in a function of `/home/me/perf/steps.py`: its listening thread wrote the dump."""
    return thread(*LISTEN, current=True) + "\n" + thread(*frames, *SERVE)


STEP = ("/home/me/perf/steps.py", "step")
WRAPPER = (TORCH / "distributed/c10d_logger.py", "wrapper")


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        pytest.param([STEP], "at steps.py:12 in step", id="in its own code"),
        pytest.param([STEP, ("/home/me/perf/steps.py", "outer")], "at steps.py:12 in step", id="the innermost counts"),
        pytest.param([(threading.__file__, "wait"), STEP], "at steps.py:12 in step, in wait", id="in the library"),
        pytest.param([(C10D, "all_reduce"), WRAPPER, STEP], "in all_reduce at steps.py:12 in step", id="collective"),
        pytest.param(
            [(C10D, "all_gather"), WRAPPER, (C10D, "all_gather_object"), WRAPPER, STEP],
            "in all_gather_object at steps.py:12 in step",
            id="what the user called, not what that calls",
        ),
        pytest.param(
            [(C10D, "recv"), WRAPPER, STEP, (C10D, "other"), ("/home/me/perf/steps.py", "outer")],
            "in recv at steps.py:12 in step",
            id="not what was called further out",
        ),
        pytest.param(
            [(TORCH / "nn/functional.py", "linear"), STEP], "at steps.py:12 in step, in linear", id="in torch"
        ),
        pytest.param(
            [("/home/me/src/torch/perf/steps.py", "step")], "at steps.py:12 in step", id="own folder named torch"
        ),
        pytest.param(
            [(C10D, "all_reduce"), WRAPPER, (TORCH.parent / "roofline_kernels/steps.py", "step")],
            "in all_reduce at steps.py:12 in step",
            id="in an installed package of rank functions",
        ),
    ],
)
def test_a_position_names_the_users_own_line_and_the_collective(frames, expected):
    assert str(position(dump(*frames))) == expected


def test_a_rank_between_collectives_of_ours_is_in_a_function_of_ours():
    text = dump((C10D, "all_gather"), WRAPPER, (OURS / "worlds.py", "in_step"))

    assert position(text).collective == "all_gather"
    assert "all_gather" in str(position(text))


@pytest.mark.parametrize("text", ["", "nothing that is a stack", thread()])
def test_without_a_stack_the_position_says_so(text):
    assert str(position(text)) == "at a place that no stack tells"


def test_the_thread_that_runs_rank_functions_is_found_among_others():
    other = thread(("/home/me/perf/loader.py", "load"), (threading.__file__, "run"))

    for text in (other + dump(STEP), dump(STEP) + other):
        assert main_frames(text)[0].name == "step"


def test_a_stack_that_is_too_deep_to_be_written_whole_is_still_the_right_one():
    # faulthandler writes the innermost hundred frames of a thread, so what leads to them is missing.
    text = thread(*LISTEN, current=True) + "\n" + thread(*[STEP] * 100) + "  ...\n"

    assert str(position(text)) == "at steps.py:12 in step"
    assert "steps.py" in main_text(text)


def test_the_text_leaves_out_what_leads_to_the_rank_function():
    text = main_text(dump((C10D, "all_reduce"), WRAPPER, STEP))

    assert [line.rpartition(" in ")[2] for line in text.splitlines()] == ["all_reduce", "wrapper", "step"]


def test_a_real_stack_of_a_real_thread_is_understood():
    release, waiting = threading.Event(), threading.Event()

    def wait_for_the_end():
        waiting.set()
        release.wait()

    stuck = threading.Thread(target=wait_for_the_end)
    stuck.start()
    waiting.wait()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        release.set()
        file.seek(0)
        text = file.read()
    stuck.join()
    (own,) = (part for part in text.split("\n\n") if "wait_for_the_end" in part)

    assert position(own).place.startswith("test_stacks.py:")
    assert position(own).place.endswith("in wait_for_the_end")
    assert position(own).inside == "wait"
