"""Strings and comments lose their names; code stays what it is."""

import ast

import pytest

from pytest_roofline.reporting.bundle.redacting import Redactor
from pytest_roofline.reporting.bundle.source_text import redacted_source


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
    assert 'x = f"user-1 {1 + 1} at path-1{2}"\n' == found
    ast.parse(found)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_file_without_names_is_as_it_was(redactor, ends):
    text = ends.join(["import torch", "", "# a comment", "x = 'y'", ""])
    assert text == redacted_source(redactor, text)


def test_a_name_in_an_identifier_cannot_be_taken_out(redactor):
    assert redacted_source(redactor, "def by_alice():\n    pass\n") is None


def test_what_is_no_python_cannot_be_given_away(redactor):
    assert redacted_source(redactor, 'x = """alice') is None
