"""Bytes, seconds, rates and percentages as text. All else is in SI units."""

import datetime
import math
import re
import unicodedata
from collections.abc import Sequence

from .errors import BadInput, refuse_wide

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40


def format_bytes(size_bytes: int, separator: str = " ") -> str:
    """Return a size in exact binary units.

    Anything but a multiple of KiB, MiB or GiB is in plain bytes.
    """
    for unit, label in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{separator}{label}"
    return f"{size_bytes}{separator}B"


def format_size(size_bytes: int) -> str:
    """Return a size in a readable unit.

    It is `512 KiB` where that is exact, else `100 MB`, rounded.
    """
    exact = format_bytes(size_bytes)
    return exact if not exact.endswith(" B") else format_amount(size_bytes)


def format_amount(size_bytes: float) -> str:
    """Return an amount of memory with three digits: `4.2 GB`, `312 MB`."""
    for unit, label in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= unit:
            return f"{three_digits(size_bytes / unit)} {label}"
    return f"{size_bytes:.0f} B"


def format_memory(size_bytes: float) -> str:
    """Return an amount of memory as allocators print it.

    It is by 1024 and with three digits: `2.00 GiB`, `537 MiB`.
    """
    for unit, label in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{three_digits(size_bytes / unit)} {label}"
    return f"{size_bytes:.0f} B"


def size_label(size_bytes: int) -> str:
    """Return a size as in a test id: `4KiB`, `2004MiB`, `65537B`."""
    return format_bytes(size_bytes, separator="")


def format_seconds(seconds: float) -> str:
    """Return a duration with three digits. The unit fits: `512 ns`, `1.34 µs`, `21.0 ms`, `3.00 s`."""
    for unit, label in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        # Rounded to three digits before the unit is chosen, so that 999.6 ns is 1.00 µs and not 1000 ns.
        if float(f"{seconds:.3g}") >= unit:
            return f"{three_digits(seconds / unit)} {label}"
    return f"{three_digits(seconds / 1e-9)} ns"


def format_rate(bytes_per_second: float) -> str:
    """Return a rate in GB/s: `1511 GB/s`, `0.412 GB/s`. GB is 1e9 bytes."""
    return f"{three_digits(bytes_per_second / 1e9)} GB/s"


def format_flops(flops_per_second: float) -> str:
    """Return arithmetic throughput: `359 TFLOP/s`, `12.1 GFLOP/s`."""
    if flops_per_second >= 1e12:
        return f"{three_digits(flops_per_second / 1e12)} TFLOP/s"
    return f"{three_digits(flops_per_second / 1e9)} GFLOP/s"


def format_percent(fraction: float) -> str:
    """Return a signed change in percent: `+25.1 %`.

    Beyond a tenfold it is `>+999 %`, since such a bound helps nobody.
    """
    return ">+999 %" if fraction > 9.99 else f"{fraction * 100:+.1f} %"


def format_tolerance(fraction: float) -> str:
    """Return an unsigned share in percent: `5 %`, `2.5 %`. Beyond a tenfold it is `>999 %`."""
    return ">999 %" if fraction > 9.99 else f"{fraction * 100:g} %"


def format_share(fraction: float) -> str:
    """Return a share in percent, rounded: `87.3 %`."""
    return f"{fraction * 100:.1f} %"


def format_factor(factor: float) -> str:
    """Return a factor: `12.6 x`."""
    return f"{three_digits(factor)} x"


def format_flop_count(flops: float) -> str:
    """Return an amount of arithmetic: `4.21 TFLOP`, `512 FLOP`."""
    for unit, label in ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if float(f"{flops:.3g}") >= unit:
            return f"{three_digits(flops / unit)} {label}"
    return f"{flops:.0f} FLOP"


def three_digits(value: float) -> str:
    """Return a number with at least three significant digits.

    From 0.001 up it has no power of ten: `1511`, `40.3`, `0.412`.
    """
    # Rounded first, so that 99.96 is shown as 100 and not as 100.0.
    rounded = float(f"{value:.3g}")
    if rounded >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if rounded >= 10 else f"{value:.2f}" if rounded >= 1 else f"{value:.3g}"


def parse_fraction(text: str, subject: str) -> float:
    """Return a share from `5%` or `0.05`."""
    match = re.fullmatch(r"\s*(?P<number>[0-9.eE+-]+)\s*(?P<percent>%?)\s*", text)
    is_percent = match is not None and match["percent"] == "%"
    try:
        number = float(match["number"]) if match else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{subject} is {text!r}; expected a share such as 5% or 0.05")
    value = number / 100 if is_percent else number
    if value <= 0:
        raise BadInput(f"{subject} is {text!r}; expected a share above zero, such as 5% or 0.05")
    # Of `5` nobody knows whether 5 % or five times is meant.
    if value >= 1 and not is_percent:
        raise BadInput(
            f"{subject} is {text!r}, which could mean {number:g} % or {number * 100:g} %; write {number:g}%"
        )
    return value


def parse_tolerance(text: str, subject: str) -> float:
    """Return a tolerance from `5%` or `0.05`.

    One above 50 % ends in an exclamation mark, `80%!`, as a deliberate one.
    """
    is_deliberate = text.rstrip().endswith("!")
    value = parse_fraction(text.rstrip().removesuffix("!"), subject)
    try:
        refuse_wide(value, is_deliberate=is_deliberate, remedy=f"write {value * 100:g}%!")
    except BadInput as error:
        raise BadInput(f"{subject} is {text!r}: {error}") from None
    return value


def parse_duration(text: str, subject: str) -> float:
    """Return a duration in seconds from `1800`, `90s`, `30m` or `1.5h`."""
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text.strip()[-1:])
    digits = text.strip()[:-1] if factor else text
    try:
        value = float(digits) * (factor or 1.0)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadInput(
            f"{subject} is {text!r}; expected a duration above zero, such as 0.5, 90s, 30m or 1h"
        )
    return value


def moment(text: str) -> datetime.datetime | None:
    """Return a date or time from ISO 8601.

    Without a zone it is UTC, without a time midnight; None where it is neither.
    """
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)


def format_day(time: datetime.datetime, now: datetime.datetime) -> str:
    """Return a day: `3 Nov`. Another year than this is named: `3 Nov 2025`."""
    year = f" {time.year}" if time.year != now.year else ""
    return f"{time.day} {time:%b}{year}"


def printable(text: str) -> str:
    """Return text as one harmless line.

    It may come from ids, files and drivers, and steers neither a terminal nor a log's reader.
    """
    # Between its quotes, `repr` has the escape of a character.
    characters = (char if not steers(char) else repr(char)[1:-1] for char in text)
    return without_commands("".join(characters))


def printable_lines(text: str) -> str:
    """Return text as harmless lines. None can steer a terminal, nor what reads a log."""
    return "\n".join(printable(line) for line in text.expandtabs().split("\n"))


def encodable(text: str) -> str:
    """Return text that UTF-8 can hold. Lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def steers(char: str) -> bool:
    """Return True if a character steers a terminal.

    It ends a line, moves a cursor, or changes the order in which text is read.
    """
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


# Commands in the log of a CI: GitHub's begin a line, after blanks; its older ones, Azure's and TeamCity's may be
# anywhere in a line.
_COMMAND = re.compile(r"^((?:[^\S\n]|\x1b\[[\d;]*m)*):(?=:)|#(?=#\w*\[)", re.MULTILINE)


def without_commands(text: str, hash_sign: str = r"\x23") -> str:
    """Return lines that a CI takes for no command.

    An escape replaces the first character of each command, so that breaking lines makes no command either.
    `hash_sign` is the escape of `#`.
    """

    def escape(command: re.Match[str]) -> str:
        # Only a command that begins with `:` has the blanks before it as a group.
        blanks = command[1]
        return hash_sign if blanks is None else rf"{blanks}\x3a"

    return _COMMAND.sub(escape, text)


def listed(texts: Sequence[str], at_most: int, by: str = ", ") -> str:
    """Return the first texts, and the number of those left out.

    Example: `a, b and 3 more`; with another separator than a comma `a; b; and 3 more`.
    """
    remainder = ""
    if len(texts) > at_most:
        # There is no comma before `and`.
        separator = by.replace(",", "")
        remainder = f"{separator}and {len(texts) - at_most} more"
    return by.join(texts[:at_most]) + remainder


def cut(lines: Sequence[str], at_most: int, noun: str) -> list[str]:
    """Return the first lines, and a line that counts the others.

    That line reads `… and 3 more of these`, where `noun` is `of these`.
    """
    return [
        *lines[:at_most],
        *([f"… and {len(lines) - at_most} more {noun}"] if len(lines) > at_most else []),
    ]


def slug(text: str) -> str:
    """Return a lower-case name, safe as a key or file name. It has letters, digits and hyphens."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-") or "unknown"


def count(number: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun: `1 process`, `3 processes`. `plural` is the ending for several."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"
