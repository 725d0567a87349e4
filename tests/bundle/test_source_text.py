"""Strings and comments lose their names; code stays what it is."""

import ast
from pathlib import Path

import pytest

from pytest_roofline.bundle.redacting import Redactor
from pytest_roofline.bundle.source_text import redacted_source

ROOT = Path(__file__).parents[2]


@pytest.fixture
def redactor():
    known = Redactor()
    known.learn("users", "alice")
    return known


def test_strings_and_comments_are_rewritten_and_the_rest_is_not(redactor):
    text = 'PATH = "/home/alice/x"  # alice\n\n\ndef f(x):\n\treturn x / 2 / PATH, """a\n10.1.2.3\n""", \'é alice\'\n'
    expected = 'PATH = "path-1"  # user-1\n\n\ndef f(x):\n\treturn x / 2 / PATH, """a\naddress-1\n""", \'é user-1\'\n'
    assert expected == redacted_source(redactor, text)


def test_a_formatted_string_stays_one(redactor):
    found = redacted_source(redactor, 'x = f"alice {1 + 1} at /srv/data/{2}"\n')
    assert "x = f'user-1 {1 + 1} at path-1{2}'\n" == found
    ast.parse(found)


SPELLINGS = (
    ('"""Job: x password="""', None),
    ('"""Secret: """', None),
    ("x = 'A_B=' 'c'", None),
    ("f'MASTER_PORT={p}'", None),
    ("f'--token={t}'", None),
    ("f'{one.label} is INVALID: {one.invalid}'", None),
    ("f'{FOLDER}/tests/{name}'", None),
    ('"%s:\\n" % x', None),
    ('"rate in %s:\\t%d" % x', None),
    ('"key:\\t%s, token=%s, A_B=%d, http://%s:%d" % x', None),
    ('"--token={} A_B={name}".format(1, name=2)', None),
    ('re.compile("\\\\d+")', None),
    ('r"(\\\\d+)"', None),
    ('b"\\\\x00"', None),
    ('assert x, "basic comparison fails"', None),
    ('text.replace("</script", "|\\\\|")', None),
    ('"""Make `folder`/x, for each token: six"""', None),
    ('u"alice"', 'u"user-1"'),
    ('b"alice \\xff"', "b'user-1 \\xff'"),
    ('"""alice\\n"""', '"""user-1\n"""'),
    ("'password=\\'it is\\''", "'password=secret-1'"),
    ('"al\\x69ce"', '"user-1"'),
    ("x = 'A_B=c' 'd'", "x = 'A_B=value-1' 'd'"),
    ("rf'{1:>{2}} {x!r} alice'", "f'{1:>{2}} {x!r} user-1'"),
    ('# alice\f\nx = "alice"', '# user-1\f\nx = "user-1"'),
)


def test_the_value_of_a_string_is_rewritten_and_not_how_it_is_spelt(redactor):
    for text, redacted in SPELLINGS:
        found = redacted_source(redactor, text)
        assert (text if redacted is None else redacted) == found
        ast.parse(found)


def test_a_string_within_a_formatted_one_is_rewritten_too(redactor):
    found = redacted_source(redactor, "x = f'{f(\"alice\")}'")
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse("x = f'{f(\"user-1\")}'"))


def test_a_name_in_the_code_within_a_string_cannot_be_taken_out(redactor):
    assert redacted_source(redactor, 'x = f"{alice}"') is None


def program(text):
    """A program without what its strings say."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


def test_every_file_of_the_suite_stays_the_program_that_it_is():
    files = [path for folder in ("perf_tests", "kernels") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 50
    redactor = Redactor()
    for path in files:
        text = path.read_text(encoding="utf-8")
        redacted = redacted_source(redactor, text)
        assert redacted is not None, path
        if redacted != text:
            assert program(redacted) == program(text), path


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_without_names_is_as_it_was(redactor, ends):
    text = ends.join(["import torch", "", "# a comment", "x = 'y'", ""])
    assert text == redacted_source(redactor, text)


def test_a_name_in_an_identifier_cannot_be_taken_out(redactor):
    assert redacted_source(redactor, "def by_alice():\n    pass\n") is None


def test_what_is_no_python_cannot_be_given_away(redactor):
    assert redacted_source(redactor, 'x = """alice') is None


def test_an_escape_that_python_does_not_know_is_the_authors(redactor, recwarn):
    text = 'x = "\\d"\n'
    assert text == redacted_source(redactor, text)
    assert [] == list(recwarn)
