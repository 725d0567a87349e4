"""Test ids of any kind: the run works, its file loads, the terminal stays steady, nothing leaves the folder."""

import json
import unicodedata

import pytest

NAMES = {
    "quotes": 'it\'s "quoted" `so`',
    "newline": "two\nlines\r\nand\ttabs",
    "dots": "../../../../etc/passwd",
    "slashes": "/absolute\\and/relative",
    "html": "<script>alert(1)</script>&amp;",
    "brackets": "a[b][/c][]] [bold]x[/bold]",
    "closing": "[/]",
    "unicode": "größe-测量-🔥",
    "escape": "\x1b[31mred\x1b[0m\x07",
    "bidi": "abc\u202edcba\u2066",
    "surrogate": "lone \ud800 surrogate",
    "nul": "nul\x00byte",
    "long": "x" * 3000,
    "empty": "",
    "percent": "100% {braces} %s $HOME",
}

SUITE = """
import pytest
from pytest_roofline import Work
VALUES = {values!a}
@pytest.mark.parametrize("value", VALUES)
def test_copy(roofline, busy, value):
    assert value in VALUES
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))
"""


def files_below(folder):
    return {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


def assert_steady(text):
    wild = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char != "\n"}
    assert not wild


@pytest.mark.parametrize("raw_ids", [False, True])
def test_any_id_is_measured_written_and_read_back(desk, raw_ids):
    # pytest itself cannot put a raw lone surrogate into the environment, so that one is tried escaped only.
    values = [value for name, value in NAMES.items() if not (raw_ids and name == "surrogate")]
    if raw_ids:
        # pytest escapes ids unless it is told not to.
        desk.ini("disable_test_id_escaping_and_forfeit_all_rights_to_community_support = true")
    desk.suite(SUITE.format(values=values))
    before = files_below(desk.path.parent)
    result = desk.run("-p", "no:cacheprovider")
    assert result.ret == 0, result.stdout.str()
    count = len(values)
    result.stdout.fnmatch_lines([f"THIS RUN GATES NOTHING: 0 of {count} compared*", f"{count} measured"])
    assert_steady(result.stdout.str().partition("= roofline =")[2])
    run = desk.last_run()
    told = [measurement.key.parameters["value"].encode() for measurement in run.measurements]
    assert told == [value.encode("utf-8", "backslashreplace") for value in values]
    assert run.not_passed == {}
    made = files_below(desk.path.parent) - before
    assert {path.parent for path in made} <= {
        desk.path, desk.path / ".roofline", desk.path / ".roofline" / "runs", desk.path.parent,
    }  # fmt: skip
    assert len([path for path in made if path.suffix == ".jsonl"]) == 1


def test_any_id_is_gated_proposed_approved_and_compared(desk):
    desk.suite(SUITE.format(values=list(NAMES.values())))
    count = len(NAMES)
    desk.run("--roofline-save=before")
    proposed = desk.cli("baseline", "propose", "before", "-o", "p.json")
    assert proposed.exit_code == 0, proposed.output
    approved = desk.cli("baseline", "approve", "p.json", "--into", "site")
    assert approved.exit_code == 0, approved.output
    assert_steady(approved.output)
    result = desk.run("--roofline-baselines=site", "--roofline-rounds=1")
    result.stdout.fnmatch_lines([f"{count} of {count} compared: {count} PASSED"])
    compared = desk.cli("compare", "before", "before")
    assert compared.exit_code == 0, compared.output
    assert_steady(compared.output)
    # One of them that is slower.
    slow = [measurement.test_id for measurement in desk.saved("before").measurements][-1]
    desk.script(slow={slow.partition("::")[2]: 1.5})
    result = desk.run("--roofline-against=before", "--junitxml=junit.xml")
    assert result.ret == 1, result.stdout.str()
    assert_steady(result.stdout.str().partition("= roofline =")[2])
    assert "REGRESSED, tolerance" in result.stdout.str()
    assert "REGRESSED" in (desk.path / "junit.xml").read_text()


def test_a_test_in_a_folder_whose_name_is_no_utf8_is_gated(desk):
    folder = desk.path / "caf\udce9"
    folder.mkdir()
    (folder / "test_it.py").write_text(SUITE.format(values=["v"]))
    before = desk.run("--roofline-save=before", "-p", "no:cacheprovider")
    before.stdout.fnmatch_lines(["THIS RUN GATES NOTHING: 0 of 1 compared*", "1 measured"])
    desk.script(slow=1.5)
    result = desk.run("--roofline-against=before", "-p", "no:cacheprovider")
    assert result.ret == 1
    assert "REGRESSED, tolerance" in result.stdout.str()


def parameters_by_id(desk, suite, *args):
    """Of each measurement what its key says of its test's parameters, by the id that pytest gives the test."""
    desk.suite(suite)
    result = desk.run(*args)
    found = {one.test_id.partition("[")[2]: one.key.parameters for one in desk.last_run().measurements}
    return result, found


NAMED = """
import enum, operator, types
import numpy, pytest, torch
from pytest_roofline import Work
class Kind(enum.IntEnum):
    SMALL = 1
@pytest.mark.parametrize("value", [{values}])
@pytest.mark.parametrize("size_bytes", [2**26])
def test_copy(roofline, busy, value, size_bytes):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


TOLD = {
    "torch.bfloat16": "bfloat16",
    "torch.device('cuda', 1)": "cuda:1",
    "torch.channels_last": "channels_last",
    "torch.strided": "strided",
    "numpy.dtype('int8')": "int8",
    "numpy.int64(7)": 7,
    "numpy.float32(0.5)": 0.5,
    "Kind.SMALL": "Kind.SMALL",
    "torch.nn.functional.relu": "relu",
    "operator.add": "add",
    "torch.nn.Linear": "Linear",
    "types": "types",
    "(2, torch.int8)": "(2, int8)",
    "{'rows': [1, 2]}": "{rows: (1, 2)}",
    "torch.Size([3])": "(3)",
    "2j": "2j",
}


def test_a_parameter_with_a_name_is_told_by_it_wherever_it_stands(desk):
    for order in (list, reversed):
        _, found = parameters_by_id(desk, NAMED.format(values=", ".join(order(list(TOLD)))))
        assert [one["value"] for one in found.values()] == list(order(list(TOLD.values())))


def test_a_parameter_that_is_an_object_is_told_by_the_id_that_the_test_gives_it(desk):
    values = "pytest.param(object(), id='large'), pytest.param(object(), id='small')"
    suite = NAMED.format(values=values).replace("[2**26]", "[torch.int8]")
    result, found = parameters_by_id(desk, suite)
    assert [one["id"] for one in found.values()] == ["int8-large", "int8-small"]
    assert "by its position" not in result.stdout.str()


def test_a_parameter_without_a_name_is_said_to_be_told_by_its_position_and_becomes_no_baseline(desk):
    values = "object(), lambda: 0, [torch.zeros(1)], torch.int8"
    result, found = parameters_by_id(desk, NAMED.format(values=values), "--roofline-save=a")
    assert [one.get("value by position", "named") for one in found.values()] == [
        "value0",
        "<lambda>",
        "value2",
        "named",
    ]
    why = "value is told by its position alone, which changes with the list; give parametrize ids=[[]…[]] that say what"
    result.stdout.fnmatch_lines([f"WARNING: copy: {why} each is; until then it is compared with nothing, and no*"])
    proposed = desk.cli("baseline", "propose", "a", "-o", "p.json")
    assert proposed.exit_code == 0, proposed.output
    assert proposed.output.count("told by its position alone") == 3
    (entry,) = json.loads((desk.path / "p.json").read_text())["entries"]
    assert entry["parameters"] == {"size_bytes": 2**26, "value": "int8"}
    desk.run("--roofline-against=a").stdout.fnmatch_lines(["*1 of 4 compared*"])


def test_a_parameter_called_id_does_not_hide_the_others_and_numbers_of_any_kind_are_gated(desk):
    values = ["float('nan')", "float('inf')", "1e308", "10**400", "-0.0", "None", "True", "2.5"]
    desk.suite(f"""
import pytest
from pytest_roofline import Work
@pytest.mark.parametrize(("shape", "id"), [((1, 2), 7), ((3, 4), 7)])
def test_shape(roofline, busy, shape, id):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
@pytest.mark.parametrize("value", [{", ".join(values)}], ids={[str(n) for n in range(len(values))]})
def test_copy(roofline, busy, value):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
""")
    desk.run("--roofline-save=before")
    keys = {str(one.key.parameters) for one in desk.saved("before").measurements if one.key.benchmark == "shape"}
    assert len(keys) == 2
    proposed = desk.cli("baseline", "propose", "before", "-o", "p.json")
    assert proposed.exit_code == 0, proposed.output or proposed.exception
    assert desk.cli("baseline", "approve", "p.json").exit_code == 0
    desk.run().stdout.fnmatch_lines(["10 of 10 compared: 10 PASSED"])


def test_a_measurement_name_of_any_kind_stays_in_the_table_and_the_folder(desk):
    desk.suite("""
from pytest_roofline import Work
def test_copy(roofline, busy):
    for name in ("../up", "[/x]", "a\\nb", "\\ud800", "<b>"):
        roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name=name)
""")
    result = desk.run()
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["5 measured"])
    assert len(desk.last_run().measurements) == 5
    assert "copy.[/x]" in result.stdout.str().partition("= roofline =")[2]


def test_a_product_name_with_tricks_stays_in_its_folder_and_line(desk):
    desk.script(product="../../Evil\nGPU \x1b[31m[bold]")
    desk.suite()
    result = desk.run("--roofline-save=before")
    assert result.ret == 0, result.stdout.str()
    assert_steady(result.stdout.str())
    assert desk.cli("baseline", "propose", "before", "-o", "p.json").exit_code == 0
    assert desk.cli("baseline", "approve", "p.json").exit_code == 0
    assert [path.name for path in (desk.path / "baselines").iterdir()] == ["evil-gpu-31m-bold.json"]
