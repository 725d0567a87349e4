"""What a run says and writes, without what differs between two runs of the same code: times, paths, machines."""

import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

# Longer lists are samples and blocks of them: of numbers the ends and the count are told, equal neighbours once.
LONGEST = 8
# As many digits as two processors agree on.
DIGITS = 9
# Facts of the machine that the tests run on.
MACHINE = {"at_s", "host", "machine_info", "software", "torch", "version"}
# Of an environment, all but these are of the machine: which there are depends on it as well.
SCRIPTED = {"device", "driver", "timed by"}
PATTERNS = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        # Lines of pytest itself, of which each version has its own.
        (r"^(platform |cachedir:|rootdir:|configfile:|plugins:).*\n", ""),
        # The terminal is wide, so that no path breaks a line at a place of its own.
        (r"([=_!])\1{9,}", r"\1\1\1\1\1"),
        (r" {2,}\[ *(\d+)%\]$", r" [\1%]"),
        # Frames of this package in a traceback, and the module of an error of its own.
        (r"^\S*pytest_roofline/\S+: in \w+\n(    .*\n)+", ""),
        (r"\bpytest_roofline(\.\w+)+\.([A-Z])", r"\2"),
        (r"^-+ generated xml file: .* -+\n", ""),
        (r"^(?:=+ )?(\d+ \w+(?:, \d+ \w+)*) in \d+(\.\d+)?s.*$", r"== \1 in <time>"),
        (r"^no tests ran in [\d.]+s$", "no tests ran in <time>"),
        (r"\b20\d{6}T\d{6}\.\d+-\d+\b", "<run id>"),
        (r"^ *File \"[^\"]*/(site-packages|plugin)/.*\n", ""),
        (r"\b0x[0-9a-f]+\b", "<address>"),
        (r"( time=| timestamp=| hostname=)\"[^\"]*\"", r'\1"<machine>"'),
        # Only scripted days are in January 2026.
        (r"(?!2026-01)20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?", "<now>"),
        (r"\b[0-9a-f]{32}\b", "<process>"),
        (r"\bprocess [0-9a-f]{6}\b", "process <id>"),
        (r"\b(pytest-roofline|roofline) \d+\.\d+\.\d+\S*?(?=[:\",]|$)", r"\1 <version>"),
        (r"\btorch (`?)\d+\.\d+[^`, ]*", r"torch \1<version>"),
        (r"\bcpu \([^()]*(\([^()]*\)[^()]*)*, [\d.]+ GiB\)", "cpu (<cpu>)"),
        (r"^(ranks: .*, on) \S+$", r"\1 <host>"),
        (r"^(changed since the baseline: kernel 6\.8\.0 → ).+$", r"\1<kernel>"),
        (r", on `[^`]+`, run ", ", on `<host>`, run "),
    )
)


def normal(name: str, text: str, folder: Path) -> str:
    """The text of a file called `name` from a run in `folder`, in a form whose diff can be read.

    JSON has its keys in order and its floats rounded, CSV is one line a cell, XML one line an element.
    """
    text = {".json": _json, ".jsonl": _lines, ".csv": _csv, ".xml": _xml}.get(
        Path(name).suffix, str
    )(text)
    text = (
        text.replace(f"{folder.resolve()}/", "").replace(f"{folder}/", "").replace(str(folder), ".")
    )
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


def _plain(value):
    """A JSON value, rounded and without the machine."""
    if isinstance(value, dict):
        if isinstance(known := value.get("environment"), dict):
            value = value | {"environment": {name: known[name] for name in SCRIPTED & known.keys()}}
        return {
            key: f"<{key}>" if key in MACHINE and each else _plain(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        if len(value) > LONGEST and all(isinstance(each, int | float) for each in value):
            return f"{len(value)} numbers from {min(value):.{DIGITS}g} to {max(value):.{DIGITS}g}"
        values = [_plain(each) for each in value]
        runs = [(each, len(list(same))) for each, same in itertools.groupby(values)]
        return (
            [f"{count} × {each}" if count > 1 else each for each, count in runs]
            if len(values) > LONGEST
            else values
        )
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _json(text: str) -> str:
    return json.dumps(_plain(json.loads(text)), indent=1, sort_keys=True, ensure_ascii=False)


def _lines(text: str) -> str:
    return "\n".join(map(_json, text.splitlines()))


def _csv(text: str) -> str:
    rows = list(csv.DictReader(io.StringIO(text)))
    cells = [
        [f"{name} = {_cell(name, value)}" for name, value in row.items() if value] for row in rows
    ]
    return "\n\n".join(
        ["columns: " + ", ".join(rows[0] if rows else [text.strip()]), *map("\n".join, cells)]
    )


def _cell(name: str, value: str) -> str:
    if name in MACHINE:
        return f"<{name}>"
    return f"{float(value):.{DIGITS}g}" if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", value) else value


def _xml(text: str) -> str:
    root = ET.fromstring(text)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode")
