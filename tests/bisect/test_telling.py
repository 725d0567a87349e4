"""The paragraph of a search for an issue."""

import pytest

from pytest_roofline.bisect.state import BisectState, Lead
from pytest_roofline.bisect.telling import Culprit, comparison_command, paragraph


def state_of(index):
    """Return the state of a search that followed one test, with packages from an index."""
    return BisectState(
        name="one",
        ends=("with:a==1", "with:a==9"),
        row=(),
        arguments=("tests", "-k", "a b"),
        cwd="",
        seed=1,
        options=("--tolerance", "3%"),
        variables={"PIP_INDEX_URL": index},
        lead=Lead("key", "test_it.py::test_copy", "copy", "+20 %"),
    )


def test_the_command_for_an_issue_holds_the_index_without_its_password():
    state = state_of("https://me:secret@index.example/simple")
    assert comparison_command(state, "with:a==3", "with:a==4") == (
        "PIP_INDEX_URL='https://***@index.example/simple' roofline ab with:a==3 with:a==4 --tolerance 3% "
        "-- tests -k 'a b'"
    )


@pytest.mark.parametrize(
    ("credentials", "advice"),
    [("me:secret@", "put your user and password in place of ***, and type"), ("", "type")],
)
def test_the_paragraph_says_what_to_put_in_place_of_a_password_that_it_hides(credentials, advice):
    state = state_of(f"https://{credentials}index.example/simple")
    culprit = Culprit("with:a==3", "with:a==4", 0.99, command="roofline ab")
    sentences = paragraph(state, culprit)
    assert sentences.endswith(f" To compare both again, {advice}: roofline ab")
