"""A test is copied with what it imports of its checkout, and with nothing else; strings and comments lose names."""

import io
import os
import zipfile
from pathlib import Path

from pytest_roofline.bundle.redacting import Redactor
from pytest_roofline.bundle.sources import (
    kept_settings,
    pytest_settings,
    redacted_source,
    sources_of,
    zipped,
)

ROOT = Path(__file__).parents[2]
LATE, EARLY = "2100-01-01T00:00:00Z", "2000-01-01T00:00:00Z"


def write(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


# What is in the checkout, what of it is not copied, and the packages of others that it needs.
CHECKOUTS = (
    (
        {"conftest.py": "", "perf/conftest.py": "", "perf/test_a.py": "import beside\nfrom tools.shapes import sizes",
         "perf/beside.py": "def f():\n    import third", "perf/third.py": "import beside", "tools/__init__.py": "",
         "tools/shapes.py": ""},
        {"perf/test_b.py": "", "other/conftest.py": "", "tools/unused.py": ""},
        set(),
    ),
    # Relative, and from folders without an init.
    (
        {"perf/__init__.py": "", "perf/test_a.py": "from . import beside\nfrom .deep.inner import x\nfrom t.m import y",
         "perf/beside.py": "from .two import *", "perf/two.py": "", "perf/deep/__init__.py": "",
         "perf/deep/inner.py": "from .. import two", "t/m.py": ""},
        {},
        set(),
    ),
    # Plugins, and packages of others.
    (
        {"conftest.py": "pytest_plugins: list[str] = ['fixtures_of_us', 'tools.more', 'xdist', *MORE, '', '/etc/x']",
         "perf/test_a.py": "import json, pytest, torch, numpy.linalg, triton\nfrom pkg import CONSTANT, gone\n"
                           "from pytest_roofline import Work",
         "fixtures_of_us.py": "", "tools/__init__.py": "", "tools/more.py": "", "pkg/__init__.py": "CONSTANT = 1"},
        {"triton/README.md": "a folder without a module is none of the checkout's"},
        {"xdist", "numpy", "triton"},
    ),
)  # fmt: skip


def test_a_test_comes_with_what_it_imports_and_nothing_else(tmp_path):
    for number, (files, others, needs) in enumerate(CHECKOUTS):
        write(tmp_path / str(number), **files, **others)
        found = sources_of("perf/test_a.py::test_x[1]", tmp_path / str(number), LATE)
        assert (found.missing, set(found.files), found.needs) == ("", set(files), needs), number
    # What pythonpath names is imported from within the checkout only.
    root = tmp_path / "root"
    write(tmp_path, **{"other/outside.py": ""})
    write(root, **{"perf/test_a.py": "import mylib, outside", "src/mylib/__init__.py": ""})
    found = sources_of("perf/test_a.py::test_x", root, LATE, ["src", "../other"])
    assert ({"perf/test_a.py", "src/mylib/__init__.py"}, {"outside"}) == (
        set(found.files),
        found.needs,
    )


def test_what_cannot_be_copied_is_told(tmp_path):
    write(tmp_path, **{"perf/test_a.py": "def"})
    for test_id in (
        "gone.py::test_x",
        "../test_a.py::test_x",
        "/etc/passwd::test_x",
        "perf::test_x",
        "",
    ):
        found = sources_of(test_id, tmp_path, LATE)
        assert ({}, True) == (found.files, "is not below" in found.missing), test_id
    assert (
        "cannot be read as Python" in sources_of("perf/test_a.py::test_x", tmp_path, LATE).missing
    )


def test_files_that_changed_after_the_run_began_are_named(tmp_path):
    write(tmp_path, **{"perf/test_a.py": "import beside", "perf/beside.py": ""})
    os.utime(tmp_path / "perf/beside.py", (0, 0))
    newer = [
        sources_of("perf/test_a.py::test_x", tmp_path, started).newer for started in (EARLY, LATE)
    ]
    assert newer == [["perf/test_a.py"], []]


def test_pytests_settings_are_found_where_pytest_reads_them(tmp_path):
    files = {
        "setup.cfg": "[tool:pytest]\npythonpath = src lib\n",
        "tox.ini": "[tox]\nx = %s\n[pytest]\npythonpath =\n  src\n  lib\n",
        "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src', 'lib']\n",
        "pytest.ini": "[pytest]\npythonpath = src lib\nmarkers =\n  a: one\n  b: two\nroofline_budget = 3\nx = t\n",
    }
    for name, text in files.items():
        write(tmp_path, **{name: text})
        assert pytest_settings(tmp_path)["pythonpath"].split() == ["src", "lib"], name
    assert kept_settings(pytest_settings(tmp_path)) == (
        "[pytest]\npythonpath = src lib\nmarkers = a: one\n    b: two\nroofline_budget = 3\n"
    )
    write(tmp_path, **{"pytest.ini": ""})
    assert pytest_settings(tmp_path) == {}
    for broken in ("[", "= 1", "\0", "[pytest"):
        write(tmp_path, **dict.fromkeys(files, broken))
        assert pytest_settings(tmp_path) == {}, broken


# What is redacted in a file by someone whose name is alice; None where nothing is.
SPELLINGS = (
    ('PATH = "/home/alice/x"  # alice\n\nx = 1 / 2 / PATH', 'PATH = "path-1"  # user-1\n\nx = 1 / 2 / PATH'),
    ('x = 1, """a\n10.1.2.3\n"""', 'x = 1, """a\naddress-1\n"""'),
    ('x = f"alice {1 + 1} at /srv/data/{2}"', 'x = f"user-1 {1 + 1} at path-1{2}"'),
    ("x = f'{f(\"alice\")}'", "x = f'{f(\"user-1\")}'"),
    ('b"alice \\xff"', 'b"user-1 \\xff"'),
    ("x = 'A_B=c' 'd'", "x = 'A_B=value-1' 'd'"),
    ('# alice\f\nx = "alice"', '# user-1\f\nx = "user-1"'),
    # An escape may hide a name, or be a part of one.
    (r'x = "a\nalice"', r"x = 'a\nuser-1'"), (r'x = "\x61lice"  # alice', "x = 'user-1'  # user-1"),
    (r'x = b"\talice\xff"', r"x = b'\tuser-1\xff'"), (r'x = f"{y}\x61lice 10.1.2.3"', "x = f'{y}user-1 address-1'"),
    # What is assigned is a secret by its name.
    ('PASSWORD = "hunter two"', 'PASSWORD = "secret-1"'),
    ("login(user, api_key='abc')", "login(user, api_key='secret-1')"),
    ('os.environ["HF_TOKEN"] = "abc"', 'os.environ["HF_TOKEN"] = "secret-1"'),
    ('x = {"passwd": "a b"}', 'x = {"passwd": "secret-1"}'),
    ('run(["curl", "-u", "bob:abc"])', 'run(["curl", "-u", "secret-1"])'),
    ('run(["x", "--token", "abc"])', 'run(["x", "--token", "secret-1"])'),
    ('setdefault("WANDB_API_KEY", "abc")', 'setdefault("WANDB_API_KEY", "secret-1")'),
    *(
        (text, None)
        for text in (
            'Tokenizer(pad_token="<pad>", mask_token="[MASK]")', 'token = next(tokens, "end")', 'x = ["token", "size"]',
            'f"{folder}/tests\\n"', '"""Job: x password="""', '"""Secret: """', "x = 'A_B=' 'c'", "f'MASTER_PORT={p}'",
            "f'--token={t}'",
            "f'{one.label} is INVALID: {one.invalid}'", "f'{FOLDER}/tests/{name}'", '"%s:\\n" % x',
            '"key:\\t%s, token=%s, A_B=%d, http://%s:%d" % x', '"--token={} A_B={name}".format(1, name=2)',
            're.compile("\\\\d+")', 'r"(\\\\d+)"', 'b"\\\\x00"', 'assert x, "basic comparison fails"',
            'text.replace("</script", "|\\\\|")', 'x = "\\d"\r\n# a comment\r\n',
            '"""Make `folder`/x, for each token: six"""', "token = 4711123\npassword = secret / host.local",
        )
    ),
)  # fmt: skip


def test_names_in_strings_and_comments_are_replaced_and_code_is_not(recwarn):
    for text, redacted in SPELLINGS:
        redactor = Redactor()
        redactor.learn("users", "alice")
        assert redacted_source(redactor, text) == (text if redacted is None else redacted)
    # A name in the code cannot be taken out, and what is no Python cannot be given away.
    for text in (
        "def alice():\n    pass\n",
        "import node.alice",
        'x = f"{alice}"',
        'x = """alice',
        "x = \0",
    ):
        redactor = Redactor()
        redactor.learn("users", "alice")
        assert redacted_source(redactor, text) is None, text
    assert [] == list(recwarn)


def test_every_file_of_the_suite_stays_the_program_that_it_is():
    files = [path for folder in ("perf_tests", "kernels") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 50
    for path in files:
        assert redacted_source(Redactor(), path.read_text(encoding="utf-8")) is not None, path


def test_equal_contents_are_equal_archives_that_say_nothing_of_who_packed_them():
    files = {"b/c.txt": b"two", "a.txt": b"one"}
    assert zipped(files) == zipped(dict(reversed(files.items())))
    found = zipfile.ZipFile(io.BytesIO(zipped(files))).infolist()
    assert [one.filename for one in found] == ["roofline-bundle/a.txt", "roofline-bundle/b/c.txt"]
    assert {(one.date_time, one.extra, one.comment) for one in found} == {
        ((1980, 1, 1, 0, 0, 0), b"", b"")
    }
