"""`--roofline-record` of compiled kernels: a file of their own, beside that of the times."""

import re

import pytest

# pytester forgets every module that an inner run imported first, and Triton does not survive a second import.
import triton.language  # noqa: F401

import pytest_roofline.kernel_gate.compile  # noqa: F401
from pytest_roofline.baselines.files import read_baseline

from .conftest import texts
from .test_record import RECORD, desk, last_line
from .test_resources import lab

__all__ = ["desk", "lab"]


def test_compiled_kernels_go_along_in_their_own_file_and_worse_ones_stay_as_they_were(lab):
    lab.suite()
    result = lab.desk.run("--roofline-record")
    assert (result.ret, last_line(result)) == (
        0,
        "RECORDED 2 of 2 in baselines/resources.json. Commit it.",
    )
    lab.compiler(registers=255)
    result = lab.desk.run("--roofline-record")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert last_line(result) == "RECORDED 1 of 2 in baselines/resources.json. Commit it."
    assert "flash[sm_90]: registers 198 → 255; the earlier entry stays" in texts(result)
    assert [each.figures["registers"] for each in nvidia(lab)] == [198]
    assert lab.desk.run("--roofline-record", "--roofline-accept-slower=wider tiles").ret == 0
    ((figures, provenance),) = [(each.figures, each.provenance) for each in nvidia(lab)]
    assert (figures["registers"], provenance["accepted"]) == (255, "wider tiles")


def nvidia(lab):
    """Return the entries of the NVIDIA target."""
    return [each for each in read_baseline(lab.baseline).exact if each.target == "sm_90"]


def test_one_run_writes_several_files_and_names_each(lab):
    lab.suite(
        "def test_both(roofline, busy):\n"
        "    roofline.resources('kernel', target='sm_90')\n"
        "    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))\n"
    )
    result = lab.desk.run(*RECORD)
    assert result.ret == 0, texts(result)
    assert re.fullmatch(
        r"RECORDED 1 of 1 in baselines/h100\.json and baselines/resources\.json; finds .*\. Commit them\.",
        last_line(result),
    )
