"""Rows of nccl-tests that lines of NCCL cut.

Example: `… sum      -1node7:1375:1375 [0] NCCL INFO AllReduce: …`.
"""

import re
from collections.abc import Collection

from .records import BadLine

ROW_HALF = r" *[\d.e+]{1,20} +[\d.]{1,20} +[\d.]{1,20} +(?:\d{1,20}|N/A)"
_FRONT = (
    r"(?: *\d+ +\d+ +[a-z]\w{0,20}(?: +[a-z]{1,20})?(?: +-?\d{1,20})?)?"
    rf"(?:{ROW_HALF})?"
)
# Lines of NCCL_DEBUG_SUBSYS=COLL and TUNING go through the buffer of the row, and stand in the middle of it.
CUT_ROW = re.compile(
    rf"(?P<front>{_FRONT})(?P<stamp>\[[^]]{{0,40}}\] )?(?P<host>[\w.-]{{1,100}}):\d+:\d+ \[-?\d+\] .*NCCL .*"
)
_WHOLE_FRONT = re.compile(_FRONT)
_TWO_DIGITS = re.compile(r".*\d\d")


def front_of(match: re.Match[str], hosts: Collection[str]) -> str:
    """Return the beginning of a table's row that a line of NCCL's log cut off.

    The line of NCCL begins with a host. Where that begins with a digit, as containers do, only the names of the hosts
    show where the number ends.

    Args:
        match: of `CUT_ROW`.
        hosts: the names in the lines `# Rank …`.

    Raises:
        BadLine: two hosts fit, or none does and the number may have digits of a host.
    """
    front: str = match["front"]
    if match["stamp"] or not front:
        return front
    number_and_host = front + match["host"]
    fronts = {
        number_and_host.removesuffix(host) for host in hosts if number_and_host.endswith(host)
    }
    fronts = {text for text in fronts if _WHOLE_FRONT.fullmatch(text)}
    if len(fronts) == 1:
        return fronts.pop()
    if fronts or _TWO_DIGITS.fullmatch(front):
        raise BadLine(
            "a number runs into a host name that no line '# Rank …' has; expected a blank between number and name"
        )
    return front
