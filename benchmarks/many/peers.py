"""Other ways to the same medians, to compare with: `python -m many.peers json|read_run FOLDER`.

`json` is what one would write by hand: the standard library and pandas, nothing checked. `read_run` is the plugin's own
careful reader, file by file, as every other command uses it.
"""

import json
import sys
from pathlib import Path
from statistics import median

import pandas as pd

from pytest_roofline.baselines.runs import read_run


def by_hand(folder: Path) -> pd.DataFrame:
    """A row a measurement, from plain JSON."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["type"] == "header":
                device = record["environment"]["device"].get("uuid")
            elif record["type"] == "measurement" and not record.get("invalid"):
                rows.append((device, record["label"], median(record["samples"]["seconds"])))
    return pd.DataFrame(rows, columns=["device", "test", "seconds"])


def by_reader(folder: Path) -> pd.DataFrame:
    """The same from `read_run`."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        run = read_run(path)
        device = run.header.environment.device.uuid
        rows += [
            (device, measurement.label, measurement.median_s)
            for measurement in run.measurements
            if not run.unfit(measurement, accept_slower=True)
        ]
    return pd.DataFrame(rows, columns=["device", "test", "seconds"])


def main(arguments: list[str]) -> int:
    """Read, take the median of each device and test, print how many there are."""
    kind, folder = arguments
    frame = (by_hand if kind == "json" else by_reader)(Path(folder))
    print(len(frame.groupby(["device", "test"])["seconds"].median()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
