"""JUnit XML of a live run, as GitLab and Jenkins read it: one failure a red test, its difference first, all figures."""

import xml.etree.ElementTree as ET

import pytest

HOSTILE = r"<&\"'>]]>|é::error::\x1b\x00\n"
SUITE = f"""
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

@pytest.fixture
def bad():
    yield
    raise RuntimeError("in teardown")

@pytest.mark.parametrize("name", ["plain", "{HOSTILE}"])
def test_copy(roofline, busy, name):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_two(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK, name="read")
    roofline.measure(lambda: busy(1e-3), work=WORK, name="write")

@pytest.mark.xfail(strict=True)
def test_strict(roofline, busy):
    roofline.measure(lambda: busy(1e-5), work=WORK)

def test_teardown(roofline, busy, bad):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
# By Jenkins' own schema of JUnit's format (junit-10.xsd), but for the properties of a case, which pytest adds.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {
        "name",
        "tests",
        "failures",
        "errors",
        "time",
        "skipped",
        "timestamp",
        "hostname",
    },
    "testcase": {"name", "classname", "time"},
    "properties": set(),
    "property": {"name", "value"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
}
INSIDE = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase", "properties"},
    "testcase": {"properties", "failure", "error"},
    "properties": {"property"},
}


@pytest.fixture
def slower(desk):
    """The root of a report in which all tests but one miss the share of the roofline that was asked for."""
    desk.suite(SUITE)
    desk.script(slow={"test_copy[plain]": 1.0, "*": 1.2})
    desk.run("--junitxml=junit.xml", "--roofline-min-percent=55")
    return ET.parse(desk.path / "junit.xml").getroot()


def test_elements_and_attributes_are_those_of_jenkins_schema_and_hostile_texts_are_escaped(
    slower, desk
):
    for element in slower.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag], element.tag
        assert {child.tag for child in element} <= INSIDE.get(element.tag, set()), element.tag
    assert {"\n"} >= {char for char in (desk.path / "junit.xml").read_text() if ord(char) < 32}
    name = r"""[<&"'>]]>|\xe9::error::\x1b\x00\n]"""
    (case,) = [case for case in slower.iter("testcase") if case.get("name") == f"test_copy{name}"]
    assert case.find("failure").get("message").startswith(f"Failed: copy{name}: +10.")


def test_every_case_has_its_figures_once_and_one_that_failed_for_itself_has_failed_whatever_its_verdict(
    slower,
):
    words = {}
    for case in slower.iter("testcase"):
        assert len(case.findall("properties")) <= 1
        told = {prop.get("name"): prop.get("value") for prop in case.iter("property")}
        words |= {
            (case.get("name"), name): word
            for name, word in told.items()
            if name.endswith("verdict")
        }
    assert words["test_copy[plain]", "roofline.verdict"] == "PASSED"
    assert {words["test_two", f"roofline.{name}.verdict"] for name in ("read", "write")} == {
        "REGRESSED"
    }
    assert {words[f"test_{name}", "roofline.verdict"] for name in ("strict", "teardown")} == {
        "FAILED"
    }
