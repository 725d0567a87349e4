"""How fast, how honest and how tidy are ranks? The figures that they were to reach, measured on this machine.

    python benchmarks/ranks.py -o docs/results/ranks.md

Takes some ten minutes; leave the machine alone meanwhile. Needs mpirun, and Slurm and munge for two emulated nodes.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rank_figures import blame, delay, ending, launching, pairing, speed
from rank_figures.page import Figure, page

ROOT = Path(__file__).resolve().parent.parent


def measure(folder: Path) -> list[Figure]:
    """All figures, in order."""
    from tests.slurm import two_nodes

    figures = [speed.measure(folder / "speed")]
    print(figures[0].text, flush=True)
    found = blame.inject()
    figures += [blame.blame_figure(found), blame.hang_figure(found)]
    # Sockets lie in the folder of Slurm, and their paths may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm-") as short, two_nodes(Path(short)) as slurm:
        figures.append(launching.measure(folder / "launching", slurm.environ))
        figures.append(pairing.measure(folder / "pairing", found))
        figures.append(ending.measure(folder / "ending", slurm.environ))
    figures.append(delay.measure(folder / "delay"))
    return figures


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="Markdown file to write")
    options = parser.parse_args()
    # Launches, faults and nodes are those of the tests.
    sys.path.insert(0, str(ROOT))
    from importlib.metadata import version

    from pytest_roofline.engine.host import host_facts

    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name))
    host = host_facts()
    facts = {"cpu": str(host.cpu_model), "cores": str(host.usable_cores), "torch": version("torch")}
    loads = {"before": f"{before:.1f}", "after": f"{os.getloadavg()[0]:.1f}"}
    text = page(figures, facts | loads)
    options.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
