"""The page of the public names, from their docstrings: `python benchmarks/api_page.py` writes `docs/reference/api.md`.

It is text that GitHub shows as it stands; a test holds it against the docstrings.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest_roofline

PAGE = Path(__file__).parents[1] / "docs/reference/api.md"
INTRODUCTION = """# Public names

Everything that `pytest_roofline` exports. Tests import nothing else of it: what is not on this page may change with any
version. The two fixtures, `roofline` and `distributed`, are objects of the classes `Roofline` and `Distributed`;
[writing a test](../writing-tests.md) and [ranks](../ranks.md) show how they are used.

```python
from pytest_roofline import Work, format_amount

work = Work(read_bytes=2**30, write_bytes=2**30, flops=2**28)
print(f"{work.metric} of {format_amount(work.traffic_bytes)}")
print(f"{work.operational_intensity} FLOP per byte")
```

```text
traffic_GBps of 2.15 GB
0.125 FLOP per byte
```
"""
SECTIONS = {
    "Measuring": (
        "Roofline",
        "Work",
        "Timed",
        "Measurement",
        "ProgramFigure",
        "Figure",
        "Resources",
    ),
    "Kinds of result": ("ResultKind", "ExactVerdict"),
    "Ranks": ("Distributed", "Rank", "mpi_world", "gpu_awareness"),
    "For ids, skips and choices of a suite": (
        *("option_value", "format_amount", "size_label", "usable_cores", "link_between"),
    ),
    "Errors": (
        "RooflineError",
        "BadInput",
        "WrongData",
        "ProgramFailed",
        "RanksFailed",
        "CompileFailed",
        "DoesNotFit",
    ),
}
# Objects of these come from fixtures and measurements, so how they are made is nobody's concern.
MADE_FOR_THE_READER = (
    *("Distributed", "Figure", "Measurement", "ProgramFigure", "Rank", "Resources", "Roofline"),
)
# What the plugin itself asks of objects that tests are given, or that a conftest.py gives.
FOR_THE_PLUGIN = {
    "Distributed": ("call", "members", "link", "size_of", "pool"),
    "Measurement": ("comparable",),
    "ResultKind": (
        *(
            "abandon",
            "against",
            "is_final",
            "may_change",
            "missed",
            "missing",
            "name_end",
            "of",
            "open",
            "reds",
        ),
        *("retract", "settle", "start", "verdicts", "write_verdicts"),
    ),
}
HEADINGS = ("Args", "Returns", "Raises", "Attributes", "Yields")
ENTRY = re.compile(r"(\*{0,2}\w+): (.*)")


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, names in SECTIONS.items():
        parts += [f"## {title}\n", *("\n".join(entry(name)) for name in names)]
    return "\n".join(parts)


def entry(name: str) -> Iterator[str]:
    """The lines of one name, with those of its public members: attributes as a list, then what is called."""
    thing = getattr(pytest_roofline, name)
    yield from described("###", name, thing)
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return
    hidden = FOR_THE_PLUGIN.get(name, ())
    ours = [kind for kind in thing.__mro__ if kind.__module__.startswith(pytest_roofline.__name__)]
    found = [pair for kind in ours for pair in vars(kind).items()]
    members = {
        each: value for each, value in found if not each.startswith("_") and each not in hidden
    }
    attributes = {member: value for member, value in members.items() if isinstance(value, property)}
    if attributes:
        told = (
            f"- `{member}`: {' '.join((inspect.getdoc(value) or '').split())}"
            for member, value in attributes.items()
        )
        yield "Attributes:\n" + "\n".join(told) + "\n"
    for member, value in members.items():
        if inspect.isfunction(value):
            yield from described("####", f"{name}.{member}", value)


def signature(name: str, thing: Any) -> str:
    """How it is called, without types: `(fn, *, work=None)`; empty of what nobody calls."""
    made = name in MADE_FOR_THE_READER or (inspect.isclass(thing) and issubclass(thing, Exception))
    if made or isinstance(thing, property):
        return ""
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(thing).parameters.values()
        if one.name != "self"
    ]
    return str(inspect.Signature(parameters))


def described(level: str, name: str, thing: Any) -> Iterator[str]:
    """A heading, how it is called, the docstring's prose, and its arguments, results and errors as lists."""
    yield f"{level} `{name}`\n"
    if called := signature(name, thing):
        yield f"`{name.rpartition('.')[2]}{called}`\n"
    prose, sections = parted(inspect.getdoc(thing) or "")
    # The parameters of a dataclass that says nothing of them are its fields, which its prose tells of.
    yield f"{prose}\n" if prose else ""
    for title, lines in sections:
        if title in ("Args", "Attributes"):
            yield f"{title}:\n" + "\n".join(lines) + "\n"
        else:
            yield f"{title}: " + " ".join(line.removeprefix("- ") for line in lines) + "\n"
    if (
        inspect.isclass(thing)
        and is_dataclass(thing)
        and not any(title == "Args" for title, _ in sections)
    ):
        yield "Fields: " + ", ".join(f"`{name}`" for name in thing.__dataclass_fields__) + ".\n"


def parted(text: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """A docstring's prose, and what stands under each of its headings as lines of a list."""
    first, *rest = re.split(rf"^({'|'.join(HEADINGS)}):\n", text, flags=re.MULTILINE)
    # What follows a heading's entries without their indentation is prose again.
    parts = [re.split(r"\n\n(?=\S)", body, maxsplit=1) for body in rest[1::2]]
    prose = "\n\n".join(
        part.strip() for part in [first, *(part for _, *after in parts for part in after)]
    )
    return prose.strip(), [
        (title, listed(body)) for title, (body, *_) in zip(rest[::2], parts, strict=True)
    ]


def listed(body: str) -> list[str]:
    """Entries of a heading, `name: what it is`, each one line of a list; other text is a paragraph."""
    joined: list[str] = []
    for line in inspect.cleandoc(body).splitlines():
        if line.startswith(" ") and joined:
            joined[-1] += " " + line.strip()
        elif joined and not ENTRY.fullmatch(line):
            joined[-1] += " " + line
        elif line:
            joined.append(line)
    found = (ENTRY.fullmatch(line) for line in joined)
    return [
        f"- `{match[1]}`: {match[2]}" if match else line
        for match, line in zip(found, joined, strict=True)
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
