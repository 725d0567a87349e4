"""What a search says at its end."""

from pytest_roofline.bisect.state import BisectState
from pytest_roofline.bisect.telling import comparison_command


def test_the_command_for_an_issue_holds_the_index_without_its_password():
    state = BisectState(
        name="one",
        ends=("with:a==1", "with:a==9"),
        row=(),
        arguments=("tests", "-k", "a b"),
        cwd="",
        seed=1,
        options=("--tolerance", "3%"),
        variables={"PIP_INDEX_URL": "https://me:secret@index.example/simple"},
    )
    assert comparison_command(state, "with:a==3", "with:a==4") == (
        "PIP_INDEX_URL='https://***@index.example/simple' roofline ab with:a==3 with:a==4 --tolerance 3% "
        "-- tests -k 'a b'"
    )
