"""What changes the digest of a source, and what does not."""

import pytest

CODE = '''
"""A module."""

def area(width, height):
    """Return the area."""
    # A reason.
    product = width * height
    if product < 0:
        raise ValueError(f"{product} is below 0")
    return product
'''
SAME = {
    "a comment": ("# A reason.", "# Another one."),
    "a docstring": ('"""Return the area."""', '"""Return what both sides span."""'),
    "no docstring": ('    """Return the area."""\n', ""),
    "the docstring of the module": ('"""A module."""', '"""Areas."""'),
    "a sentence": ("{product} is below 0", "{product} is negative; expected 0 or more"),
    "annotations": ("area(width, height)", "area(width: int, height: int = 1) -> int"),
    "a blank line": ("    if product", "\n    if product"),
    "the name of a local variable": ("product", "result"),
}
OTHER = {
    "an operator": ("width * height", "width + height"),
    "a number": ("product < 0", "product < 1"),
    "the name of a function": ("def area", "def surface"),
    "a parameter, which callers may name": ("height", "depth"),
    "what a name is of": ("return product", "return width"),
}


@pytest.fixture(scope="module")
def digests(program):
    return program("digests")


@pytest.fixture
def digest_of(digests, tmp_path):
    def write(text, name="source.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return digests.digest(path)

    return write


@pytest.mark.parametrize("change", SAME.values(), ids=SAME)
def test_english_and_names_of_locals_leave_a_digest(digest_of, change):
    # A default is no annotation.
    changed = CODE.replace(*change).replace(" = 1)", ")")
    assert changed != CODE
    assert digest_of(changed) == digest_of(CODE)


@pytest.mark.parametrize("change", OTHER.values(), ids=OTHER)
def test_what_is_computed_changes_a_digest(digest_of, change):
    assert digest_of(CODE.replace(*change)) != digest_of(CODE)


def test_a_suite_in_a_string_is_code_and_a_word_is_a_name(digest_of):
    suite = 'SUITE = """\nimport time\n\n# A reason.\ntime.sleep(1)\n"""\n'
    assert digest_of(suite) == digest_of(suite.replace("A reason", "Another"))
    assert digest_of(suite) != digest_of(suite.replace("sleep(1)", "sleep(2)"))
    assert digest_of("MODE = 'fast'\n") != digest_of("MODE = 'slow'\n")


@pytest.mark.parametrize(
    "line",
    [
        "raise ValueError('go fast')",
        "raise ValueError('go fast' if x else 'y')",
        "print('go fast', file=x)",
        "self._tell('go fast')",
        "parser.error('go fast')",
        "add('--x', help='go fast')",
        "Parser(description='go fast')",
        "x = f'go fast {y}'",
    ],
)
def test_english_in_a_text_for_people_leaves_a_digest(digest_of, line):
    assert digest_of(line) == digest_of(line.replace("fast", "slow"))


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("KERNELS = 'copy or read'", "KERNELS = 'copy or write'"),
        ("t.split(' ')", "t.split('\\n')"),
        ("'a b'.split()", "'a c'.split()"),
        ("print(run('go fast'))", "print(run('go slow'))"),
        ("f'{x} {y}'", "f'{x}, {y}'"),
        ("SCRIPT = 'set -e\\ncp a b\\n'", "SCRIPT = 'set -e\\ncp b a\\n'"),
        ("f'set -e\\ncp a {x}'", "f'set -e\\nmv a {x}'"),
    ],
)
def test_a_text_that_is_computed_with_changes_a_digest(digest_of, line, changed):
    assert digest_of(line) != digest_of(changed)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("s = 2; sorted(r, key=lambda v: s)", "v = 2; sorted(r, key=lambda v: v)"),
        ("s = 2; import v; return s", "v = 2; import v; return v"),
        ("s = 2; global v; return s", "v = 2; global v; return v"),
    ],
)
def test_a_local_of_the_name_of_another_variable_changes_a_digest(digest_of, body, changed):
    assert digest_of(f"def f(r): {body}") != digest_of(f"def f(r): {changed}")


def test_data_are_taken_byte_by_byte(digest_of):
    assert digest_of("{}", "data.json") != digest_of("{ }", "data.json")


def test_a_folder_has_the_digest_of_its_files_and_their_names(digests, tmp_path):
    folder = tmp_path / "folder"
    (folder / "deep" / "__pycache__").mkdir(parents=True)
    (folder / "deep" / "code.py").write_text("x = 1\n", encoding="utf-8")
    before = digests.digest(folder)
    (folder / "deep" / "__pycache__" / "code.pyc").write_bytes(b"1")
    assert digests.digest(folder) == before
    (folder / "deep" / "code.py").rename(folder / "deep" / "other.py")
    renamed = digests.digest(folder)
    (folder / "deep" / "other.py").write_text("x = 2\n", encoding="utf-8")
    assert len({before, renamed, digests.digest(folder)}) == 3


def test_a_source_that_is_not_there_has_no_digest(digests, tmp_path):
    with pytest.raises(FileNotFoundError):
        digests.digest(tmp_path / "none.py")
