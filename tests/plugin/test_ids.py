"""Test ids of any kind: the run works, its file loads, the terminal stays steady, nothing leaves the folder."""

import json
import unicodedata

NAMES = [
    'it\'s "quoted" `so`', "two\nlines\r\nand\ttabs", "../../../../etc/passwd", "/absolute\\and/relative",
    "<script>alert(1)</script>&amp;", "a[b][/c][]] [bold]x[/bold]", "[/]", "größe-测量-🔥", "\x1b[31mred\x1b[0m\x07",
    "abc\u202edcba\u2066", "nul\x00byte", "x" * 3000, "", "100% {braces} %s $HOME", "lone \ud800 surrogate",
]  # fmt: skip
SUITE = """
import pytest
from pytest_roofline import Work
VALUES = {values!a}
@pytest.mark.parametrize("value", VALUES)
def test_copy(roofline, busy, value):
    assert value in VALUES
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))
"""
ONCE = "--roofline-rounds=1"


def files_below(folder):
    return {
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


def assert_steady(text):
    wild = {
        char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char != "\n"
    }
    assert not wild


def test_any_id_is_measured_written_and_read_back(desk):
    # pytest escapes ids unless it is told not to; then it cannot put a raw lone surrogate into the environment.
    escape = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support = true"
    for ini, values in ((escape, NAMES[:-1]), ("", NAMES)):
        desk.ini(ini)
        desk.suite(SUITE.format(values=values))
        before = files_below(desk.path.parent)
        result = desk.run("-p", "no:cacheprovider")
        assert result.ret == 0, result.stdout.str()
        count = len(values)
        result.stdout.fnmatch_lines([f"{count} measured", "GREY: nothing was compared*"])
        assert_steady(result.stdout.str().partition("= roofline =")[2])
        told = [
            measurement.key.parameters["value"].encode()
            for measurement in desk.last_run().measurements
        ]
        assert told == [value.encode("utf-8", "backslashreplace") for value in values]
        assert {path.parent for path in files_below(desk.path.parent) - before} <= {
            desk.path, desk.path / ".roofline", desk.path / ".roofline" / "runs", desk.path.parent,
        }  # fmt: skip


def test_any_id_is_gated_proposed_approved_and_compared(desk):
    desk.suite(SUITE.format(values=NAMES))
    count = len(NAMES)
    desk.run("--roofline-save=before")
    for command in (("propose", "before", "-o", "p.json"), ("approve", "p.json", "--into", "site")):
        answer = desk.cli("baseline", *command)
        assert answer.exit_code == 0, answer.output
    assert_steady(answer.output)
    result = desk.run("--roofline-baselines=site", ONCE)
    result.stdout.fnmatch_lines([f"GREEN: {count} of {count} fast enough"])
    desk.run("--roofline-save=again")
    compared = desk.cli("compare", "before", "again")
    assert compared.exit_code == 0, compared.output
    assert_steady(compared.output)
    # One of them that is slower.
    slow = [measurement.test_id for measurement in desk.saved("before").measurements][-1]
    desk.script(slow={slow.partition("::")[2]: 1.5})
    result = desk.run("--roofline-against=before", ONCE, "--roofline-fail-on=regressed,inconclusive",
                      "--junitxml=junit.xml", "-k", "surrogate")  # fmt: skip
    assert result.ret == 1, result.stdout.str()
    assert_steady(result.stdout.str().partition("= roofline =")[2])
    assert "looks 50 % slower" in result.stdout.str()
    assert "INCONCLUSIVE" in (desk.path / "junit.xml").read_text()


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
    "float('nan')": "nan",
    "10**400": str(10**400),
    "1": 1,
    "True": True,
    "1.0": 1.0,
}


def parameters_by_id(desk, suite, *args):
    """Of each measurement what its key says of its test's parameters, by the id that pytest gives the test."""
    desk.suite(suite)
    result = desk.run(*args)
    found = {
        one.test_id.partition("[")[2]: one.key.parameters for one in desk.last_run().measurements
    }
    return result, found


def test_a_parameter_with_a_name_is_told_by_it_wherever_it_stands(desk):
    for order in (list, reversed):
        _, found = parameters_by_id(desk, NAMED.format(values=", ".join(order(list(TOLD)))))
        assert [one["value"] for one in found.values()] == list(order(list(TOLD.values())))
    # What is an object is told by the id that the test gives it.
    values = "pytest.param(object(), id='large'), pytest.param(object(), id='small')"
    result, found = parameters_by_id(
        desk, NAMED.format(values=values).replace("[2**26]", "[torch.int8]")
    )
    assert [one["id"] for one in found.values()] == ["int8-large", "int8-small"]
    assert "by its position" not in result.stdout.str()
    # A parameter that is called so itself hides none of the others.
    clash = NAMED.format(values="(1, 2), (3, 4)").replace('"size_bytes", [2**26]', '"id", [7]')
    _, found = parameters_by_id(desk, clash.replace("value, size_bytes", "value, id"))
    assert len({str(one) for one in found.values()}) == 2


def test_a_parameter_without_a_name_is_said_to_be_told_by_its_position_and_becomes_no_baseline(
    desk,
):
    values = "object(), lambda: 0, [torch.zeros(1)], torch.int8"
    result, found = parameters_by_id(desk, NAMED.format(values=values), "--roofline-save=a")
    positions = [one.get("value by position", "named") for one in found.values()]
    assert positions == ["value0", "<lambda>", "value2", "named"]
    why = (
        "only positions in the list identify the values of value, and positions may change; pass ids=[[]…[]] to "
        "parametrize, with a name for"
    )
    result.stdout.fnmatch_lines(
        [f"WARNING: copy: {why} each value. Until then the test is neither*"]
    )
    proposed = desk.cli("baseline", "propose", "a", "-o", "p.json")
    assert (proposed.exit_code, proposed.output.count("only positions in the list identify")) == (
        0,
        3,
    ), proposed.output
    (entry,) = json.loads((desk.path / "p.json").read_text())["entries"]
    assert entry["parameters"] == {"size_bytes": 2**26, "value": "int8"}
    desk.run("--roofline-against=a").stdout.fnmatch_lines(["GREY: 1 of 4 fast enough*"])


def test_names_of_measurements_and_products_of_any_kind_stay_in_the_table_and_the_folder(desk):
    desk.script(product="../../Evil\nGPU \x1b[31m[bold]")
    desk.suite("""
from pytest_roofline import Work
def test_copy(roofline, busy):
    for name in ("../up", "[/x]", "a\\nb", "\\ud800", "<b>"):
        roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name=name)
""")
    result = desk.run("--roofline-save=before")
    assert result.ret == 0, result.stdout.str()
    assert_steady(result.stdout.str())
    result.stdout.fnmatch_lines(["5 measured"])
    assert "copy.[/x]" in result.stdout.str().partition("= roofline =")[2]
    assert desk.cli("baseline", "propose", "before", "-o", "p.json").exit_code == 0
    assert desk.cli("baseline", "approve", "p.json").exit_code == 0
    assert [path.name for path in (desk.path / "baselines").iterdir()] == ["evil-gpu-31m-bold.json"]


OWN_NAMES = """
import pytest
from pytest_roofline import Work

@pytest.mark.parametrize(("ranks", "size_bytes"), [pytest.param(2, 1024, id="2ranks-1KiB")])
@pytest.mark.parametrize("memory", ["pinned"], ids=["locked"])
def test_reduce(roofline, busy, ranks, size_bytes, memory):
    roofline.measure(lambda: busy(1e-3), work=Work(payload_bytes=2 * size_bytes))
"""
OWN_NAME = "reduce[locked-2ranks-1KiB]"


def test_every_command_calls_a_test_by_the_name_that_its_run_has(desk):
    baseline = desk.baseline(text=OWN_NAMES)
    assert [entry.label for entry in baseline.entries if not entry.is_canary] == [OWN_NAME]
    desk.script(slow=1.3)
    result = desk.run(
        "--roofline-save=slow", "--roofline-rounds=1", "--roofline-baselines=baselines"
    )
    # A message and its answer are two of the size that the name says.
    size = [line.split() for line in result.stdout.lines if line.startswith(OWN_NAME)]
    assert [OWN_NAME, "1", "KiB"] in [words[:3] for words in size]
    assert desk.cli("baseline", "propose", "slow", "-o", "again.json").exit_code == 0
    desk.run("--roofline-save=again", ONCE)
    commands = ("baseline show baselines/h100.json", "baseline show again.json", "compare baselines/h100.json slow",
                "compare slow again", "compare slow baselines/h100.json", "explain slow")  # fmt: skip
    for command in commands:
        assert OWN_NAME in desk.cli(*command.split()).output, command
    # An entry that was made with other ids is called anew by an approval.
    path = desk.path / "baselines" / "h100.json"
    path.write_text(path.read_text().replace(f'"called": "{OWN_NAME}"', '"called": ""'))
    assert "reduce[pinned-2-1KiB]" in desk.cli("baseline", "show", path).output
    assert OWN_NAME in desk.cli("baseline", "approve", "again.json", "--into", "baselines").output
