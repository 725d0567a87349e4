"""The page on the compile gate, followed step by step with the real compiler."""

import re
from pathlib import Path

# pytester forgets every module that an inner run imported first, and Triton does not survive a second import.
import triton.language  # noqa: F401

import pytest_roofline.kernel_gate.compile  # noqa: F401

from ..plugin.conftest import _recorded, desk  # noqa: F401
from ..plugin.test_resources import printed


def test_the_page_on_the_compile_gate_shows_what_happens(
    desk,  # noqa: F811
    monkeypatch,
    tmp_path_factory,
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    page = (Path(__file__).parents[2] / "docs" / "compile-gate.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    for name, text in blocks.items():
        (desk.path / name).write_text(text)
    test = desk.path / "test_kernels.py"
    desk.pytester.syspathinsert()
    result = desk.run("test_kernels.py", "--roofline-save=first")
    assert result.ret == 0, printed(result)
    for command in re.findall(r"^roofline (baseline .*)$", page, re.MULTILINE)[:2]:
        answer = desk.cli(*command.split())
        assert answer.exit_code == 0, answer.output
    desk.run("test_kernels.py").stdout.fnmatch_lines(["0 measured, 2 compiled", "GREEN: 2 of 2 *"])
    (change,) = re.findall(r"^-(.*)\n\+(.*)$", page, re.MULTILINE)
    test.write_text(test.read_text().replace(*(line.strip() for line in change)))
    result = desk.run("test_kernels.py")
    assert result.ret == 1
    red = re.search(r"^(multiply\[sm_90\]: .*? REGRESSED)", page, re.MULTILINE | re.DOTALL)[1]
    figures = re.findall(r"(\S+) \d+ → \d+", red)
    found = re.search(r"^multiply\[sm_90\]: (.*?) REGRESSED", printed(result), re.MULTILINE)[1]
    assert re.findall(r"(\S+) \d+ → \d+", found) == figures
