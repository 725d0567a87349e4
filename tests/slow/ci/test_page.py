"""docs/ci.md and pull-requests.md tell what stands in the files beside them."""

import re

import yaml

from .conftest import ROOT, SHIPPED

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def measuring(name, text):
    """The command of a file that measures, without line ends and with the same name for the run and the report."""
    if name == "github-actions.yml":
        steps = yaml.safe_load(text)["jobs"]["measure"]["steps"]
        commands = steps[-1]["with"]["run"]
        text = commands[commands.index("pytest ") : commands.index(" || status=")]
    elif name == "gitlab-ci.yml":
        text = next(
            line for line in yaml.safe_load(text)["roofline"]["script"] if line.startswith("pytest")
        )
        text = text.removesuffix(" || status=$?")
    else:
        text = text[text.index("exec python") :]
        text = (
            text.removeprefix("exec python -m ")
            .replace("$tests", "$ROOFLINE_TESTS")
            .replace("/$name", "")
        )
        text = text.replace('${launcher[@]+"${launcher[@]}"} ', "")
    plain = " ".join(text.replace("\\\n", " ").replace('"', "").split())
    return re.sub(r"--roofline-save=\S+", "--roofline-save=NAME", plain)


def test_the_command_of_the_page_is_that_of_each_file_and_selects_tests_that_the_suite_has():
    (command,) = re.findall(r"```sh\n(.*ROOFLINE_TESTS.*)\n```", PAGE)
    suite = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "perf_tests").glob("test_*.py")
    )
    # Those of `roofline ab`, and those that watch nodes, have commands of their own.
    texts = {path: path.read_text(encoding="utf-8") for path in SHIPPED.iterdir()}
    gates = {path: text for path, text in texts.items() if "--roofline-ci" in text}
    assert len(gates) == 3
    for path, text in gates.items():
        assert command.replace('"', "") == measuring(path.name, text), path.name
        (selection,) = re.findall(r"ROOFLINE_TESTS(?::-|: )(.*?)}?$", text, re.MULTILINE)
        assert selection == "memcpy or stream", path.name
        assert all(
            re.search(rf"^def test_{word}", suite, re.MULTILINE) for word in selection.split(" or ")
        )


def test_each_file_has_a_row_or_a_link_that_leads_to_it():
    fleet, pulls = (
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("fleet.md", "pull-requests.md")
    )
    rows = re.findall(r"^\| \[([\w.-]+)\]\(ci/\1\) \|", PAGE + pulls, re.M)
    links = re.findall(r"\[`([\w.-]+)`\]\(ci/\1\)", fleet)
    assert {path.name for path in SHIPPED.iterdir()} == {*rows, *links}
