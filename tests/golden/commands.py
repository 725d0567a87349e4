"""The golden cases of the command line."""

import json
import shutil
import zlib
from functools import partial
from pathlib import Path

from ..features import ALL
from ..plugin.conftest import NOISY, SUITE
from .cases import DAYS, FILES, Case
from .suites import UNEVEN

DATA = Path(__file__).parents[1] / "exchange" / "data"


def imported(file, *options):
    """A file of another tool, and the command that reads it."""

    def copy(desk):
        shutil.copy(DATA / file, desk.path)

    return copy, " ".join(("roofline import", file, "--save run", *options))


def nodes(desk, slow=1.4):
    """A run of each day becomes one of each of eight nodes, the fourth of which is slow."""
    for path in desk.run_paths():
        for node in range(8):
            records = [json.loads(line) for line in path.read_text().splitlines()]
            records[0]["environment"]["host"]["name"] = f"node{node}"
            records[0]["environment"]["device"]["uuid"] = f"GPU-{node}"
            for record in records[1:]:
                if record["type"] == "measurement":
                    seconds = record["samples"]["seconds"]
                    wobble = zlib.crc32(f"{node} {path.stem}".encode()) % 21 / 1000
                    factor = (0.99 + wobble) * (slow if node == 3 else 1)
                    record["samples"]["seconds"] = [each * factor for each in seconds]
            written = desk.path / "fleet" / f"node{node}-{path.name}"
            written.parent.mkdir(exist_ok=True)
            written.write_text("".join(json.dumps(record) + "\n" for record in records))


def listed(desk):
    """The names of the files in the folder `new`, as a file that is stored."""
    paths = [path for path in sorted((desk.path / "new").rglob("*")) if path.is_file()]
    (desk.path / "list.txt").write_text(
        "".join(f"{path.relative_to(desk.path)}\n" for path in paths)
    )


# The first is the last night's.
SLOWER_BY_NIGHT = (1.1, *(1.0,) * 6, *(1.1,) * 5)

COMMANDS = {
    "baseline": Case(
        (
            f"roofline baseline propose {DAYS.replace(',', ' ')} -o proposal.json",
            "roofline baseline approve proposal.json",
            "roofline baseline show",
            "roofline baseline show --json",
            "roofline baseline check",
            {"slow": 1.3},
            "pytest {reported} --roofline-rounds=1",
            "roofline compare baselines/h100.json run",
            "roofline baseline propose run -o slower.json",
            "roofline baseline propose run -o slower.json --accept-slower",
        ),
        SUITE,
        days=NOISY,
        keeps=(*FILES, "proposal.json", "baselines/*.json"),
    ),
    "save_and_against": Case(
        (
            "pytest -q --roofline-save=before",
            "pytest -q --roofline-save=before",
            "pytest -q --roofline-against=elsewhere",
            "pytest -q --roofline-against=before",
        )
    ),
    "compare_unchanged": Case(
        ("roofline compare day1,day2,day3 day4,day5", "roofline compare day1 day9"), SUITE, NOISY
    ),
    "export": Case(
        (
            "pytest -q --roofline-save=run",
            "roofline export run --to pytest-benchmark -o pytest-benchmark.json",
            "roofline export run --to github-action-benchmark -o github.json",
            "roofline export run --to github-action-benchmark-rates -o rates.json",
            "roofline export run --to bencher -o bencher.json --json",
        ),
        UNEVEN,
        keeps=("pytest-benchmark.json", "github.json", "rates.json", "bencher.json"),
        features=("exchange",),
    ),
    "import_nccl_tests": Case(
        (*imported("a100-all_gather.log", "--operation all_gather"), "roofline compare run run"),
        features=("exchange",),
    ),
    "import_rccl_tests": Case(imported("mi300x-all_reduce.log"), keeps=(), features=("exchange",)),
    "import_nvbandwidth": Case(
        imported("a6000-nvbandwidth.json"), keeps=(), features=("exchange",)
    ),
    "import_babelstream": Case(imported("mi300x-babelstream.csv"), features=("exchange",)),
    "import_pytest_benchmark": Case(
        imported("pytest-benchmark-storage-0030.json"), features=("exchange",)
    ),
    "history": Case(
        (partial(nodes, slow=1.0), "roofline history fleet", "roofline history fleet --json"),
        days=SLOWER_BY_NIGHT,
        features=("many",),
    ),
    "fleet": Case(
        (nodes, "roofline fleet fleet", "roofline fleet fleet --json"),
        SUITE,
        NOISY,
        features=("many",),
    ),
    "report": Case(
        ("roofline report day1 day2 -o out", "roofline report nowhere -o out"), days=NOISY
    ),
    "init": Case(("roofline init new", "roofline init new", listed), keeps=("list.txt",)),
    "hardware": Case(
        (
            "roofline hardware h100-sxm5",
            "roofline hardware h100-sxm5 --json",
        )
    ),
    "help": Case(
        (
            "roofline --help",
            *(
                f"roofline {name} --help"
                for name in ("compare", "explain", "drill", "report", "baseline propose")
            ),
            "roofline nonsense",
            "roofline compare",
        ),
        features=tuple(ALL),
    ),
}
