"""docs/ci.md tells what stands in the files beside it."""

import re

import pytest
import yaml

from .conftest import ROOT, SHIPPED

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def measuring(name):
    """The command of a file that measures, without line ends and with the same name for the run and the report."""
    text = (SHIPPED / name).read_text(encoding="utf-8")
    if name == "github-actions.yml":
        steps = yaml.safe_load(text)["jobs"]["measure"]["steps"]
        text = next(step["run"] for step in steps if step.get("name") == "Measure")
    elif name == "gitlab-ci.yml":
        text = next(line for line in yaml.safe_load(text)["roofline"]["script"] if line.startswith("pytest"))
        text = text.removesuffix(" || status=$?")
    else:
        text = text[text.index("exec python") :]
        text = text.removeprefix("exec python -m ").replace("$tests", "$ROOFLINE_TESTS").replace("/$name", "")
        text = text.replace('${launcher[@]+"${launcher[@]}"} ', "")
    return re.sub(r"--roofline-save=\S+", "--roofline-save=NAME", " ".join(text.replace("\\\n", " ").split())).replace(
        '"', ""
    )


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED.iterdir()))
def test_the_command_of_the_page_is_that_of_each_file(name):
    (command,) = re.findall(r"```sh\n(.*ROOFLINE_TESTS.*)\n```", PAGE)
    assert command.replace('"', "") == measuring(name)


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED.iterdir()))
def test_every_file_selects_tests_that_the_suite_has(name):
    (selection,) = re.findall(
        r"ROOFLINE_TESTS(?::-|: )(.*?)}?$", (SHIPPED / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    suite = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "perf_tests").glob("test_*.py"))
    assert selection == "memcpy or stream"
    assert all(re.search(rf"^def test_{word}", suite, re.MULTILINE) for word in selection.split(" or "))
