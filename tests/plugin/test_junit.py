"""JUnit XML of a live run, as GitLab and Jenkins read it: one failure a red test, its difference first, all figures."""

import xml.etree.ElementTree as ET

import pytest

HOSTILE = r"<&\"'>]]>|é::error::\x1b\x00\n"
SUITE = f"""
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

@pytest.mark.parametrize("name", ["plain", "{HOSTILE}"])
def test_copy(roofline, busy, name):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_two(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK, name="read")
    roofline.measure(lambda: busy(1e-3), work=WORK, name="write")
"""
ENDS = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

@pytest.fixture
def bad():
    yield
    raise RuntimeError("in teardown")

@pytest.mark.xfail(strict=True)
def test_strict(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_teardown(roofline, busy, bad):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_fine(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
# By Jenkins' own schema of JUnit's format (junit-10.xsd), but for the properties of a case, which pytest adds.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
    "testcase": {"name", "classname", "time"},
    "properties": set(),
    "property": {"name", "value"},
    "failure": {"message", "type"},
    "skipped": {"message", "type"},
}
INSIDE = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase", "properties"},
    "testcase": {"properties", "failure", "skipped"},
    "properties": {"property"},
}


@pytest.fixture
def junit(desk):
    """Runs pytest with JUnit XML, and gives its cases by the name of the test."""

    def run(*args):
        result = desk.run("--junitxml=junit.xml", *args)
        root = ET.parse(desk.path / "junit.xml").getroot()
        return result, root, {case.get("name"): case for case in root.iter("testcase")}

    return run


def figures(case):
    return {prop.get("name"): prop.get("value") for prop in case.iter("property")}


@pytest.fixture
def slower(desk, junit):
    """All but one test have become slower by a fifth."""
    against = desk.sessions(SUITE, (1.0, 1.004, 0.996))
    desk.script(slow={"test_copy[plain]": 1.0, "*": 1.2})
    return junit(*against)


def test_elements_and_attributes_are_those_of_jenkins_schema(slower):
    _, root, _ = slower
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag], element.tag
        assert {child.tag for child in element} <= INSIDE.get(element.tag, set()), element.tag
    for case in root.iter("testcase"):
        assert len(case.findall("properties")) <= 1


def test_hostile_texts_are_escaped_and_no_control_character_is_left(slower, desk):
    _, _, cases = slower
    assert {"\n"} >= {char for char in (desk.path / "junit.xml").read_text() if ord(char) < 32}
    name = r"""[<&"'>]]>|\xe9::error::\x1b\x00\n]"""
    message = cases[f"test_copy{name}"].find("failure").get("message")
    assert message.startswith(f"Failed: copy{name}: +20.")


def test_what_could_not_be_judged_passes_with_its_word_and_fails_where_a_gate_asks(desk, junit):
    desk.suite(SUITE)
    _, _, cases = junit("-k", "plain")
    assert ("NO BASELINE", []) == (
        figures(cases["test_copy[plain]"])["roofline.verdict"], cases["test_copy[plain]"].findall("failure")
    )  # fmt: skip
    _, _, cases = junit("-k", "plain", "--roofline-require-baseline")
    (failure,) = cases["test_copy[plain]"].findall("failure")
    assert "NO BASELINE" in failure.get("message")


def test_a_test_that_failed_for_itself_has_failed_whatever_its_verdict(desk, junit):
    desk.suite(ENDS)
    _, _, cases = junit()
    assert {"FAILED"} == {figures(cases[f"test_{name}"])["roofline.verdict"] for name in ("strict", "teardown")}
    assert "NO BASELINE" == figures(cases["test_fine"])["roofline.verdict"]
