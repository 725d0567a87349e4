"""SI inside, scaled only here: how bytes, seconds, rates and percentages are shown and read."""

import datetime
import math
import re
import unicodedata
from collections.abc import Sequence

from .errors import BadInput, refuse_wide

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40


def format_bytes(size_bytes: int, separator: str = " ") -> str:
    """A size as people say it: exact binary multiples as KiB, MiB or GiB, anything else in plain bytes."""
    for unit, label in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{separator}{label}"
    return f"{size_bytes}{separator}B"


def format_size(size_bytes: int) -> str:
    """Return a size in a unit that a person reads: `512 KiB` where that is exact, else `100 MB`, rounded."""
    exact = format_bytes(size_bytes)
    return exact if not exact.endswith(" B") else format_amount(size_bytes)


def format_amount(size_bytes: float) -> str:
    """An amount of memory, rounded to three digits: `4.2 GB`, `312 MB`."""
    for unit, label in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= unit:
            return f"{three_digits(size_bytes / unit)} {label}"
    return f"{size_bytes:.0f} B"


def format_memory(size_bytes: float) -> str:
    """An amount of memory as allocators print it, by 1024 and with three digits: `2.00 GiB`, `537 MiB`."""
    for unit, label in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit:
            return f"{three_digits(size_bytes / unit)} {label}"
    return f"{size_bytes:.0f} B"


def size_label(size_bytes: int) -> str:
    """A size as it stands in a test id: `4KiB`, `2004MiB`, `65537B`."""
    return format_bytes(size_bytes, separator="")


def format_seconds(seconds: float) -> str:
    """A duration with three digits in the unit that fits: `512 ns`, `1.34 µs`, `21.0 ms`, `3.00 s`."""
    for unit, label in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        # Rounded to three digits before the unit is chosen, so that 999.6 ns is 1.00 µs and not 1000 ns.
        if float(f"{seconds:.3g}") >= unit:
            return f"{three_digits(seconds / unit)} {label}"
    return f"{three_digits(seconds / 1e-9)} ns"


def format_rate(bytes_per_second: float) -> str:
    """A rate in GB/s, where GB is 1e9 bytes: `1511 GB/s`, `0.412 GB/s`."""
    return f"{three_digits(bytes_per_second / 1e9)} GB/s"


def format_flops(flops_per_second: float) -> str:
    """Arithmetic throughput: `359 TFLOP/s`, `12.1 GFLOP/s`."""
    if flops_per_second >= 1e12:
        return f"{three_digits(flops_per_second / 1e12)} TFLOP/s"
    return f"{three_digits(flops_per_second / 1e9)} GFLOP/s"


def format_percent(fraction: float) -> str:
    """A signed change in percent: `+25.1 %`; of a tenfold only that it is more, since such a bound tells nothing."""
    return ">+999 %" if fraction > 9.99 else f"{fraction * 100:+.1f} %"


def format_tolerance(fraction: float) -> str:
    """An unsigned share in percent, without needless zeros: `5 %`, `2.5 %`; of a tenfold only that it is more."""
    return ">999 %" if fraction > 9.99 else f"{fraction * 100:g} %"


def format_share(fraction: float) -> str:
    """A share in percent, rounded: `87.3 %`."""
    return f"{fraction * 100:.1f} %"


def format_factor(factor: float) -> str:
    """How many times: `12.6 x`."""
    return f"{three_digits(factor)} x"


def format_flop_count(flops: float) -> str:
    """An amount of arithmetic: `4.21 TFLOP`, `512 FLOP`."""
    for unit, label in ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if float(f"{flops:.3g}") >= unit:
            return f"{three_digits(flops / unit)} {label}"
    return f"{flops:.0f} FLOP"


def three_digits(value: float) -> str:
    """A number of at least three significant digits, never in powers of ten from 0.001 up: `1511`, `40.3`, `0.412`."""
    rounded = float(f"{value:.3g}")
    if rounded >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if rounded >= 10 else f"{value:.2f}" if rounded >= 1 else f"{value:.3g}"


def parse_fraction(text: str, what: str) -> float:
    """A share from `5%` or `0.05`."""
    match = re.fullmatch(r"\s*([0-9.eE+-]+)\s*(%?)\s*", text)
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{what} is {text!r}; expected a share such as 5% or 0.05")
    value = number / 100 if match and match[2] else number
    if value <= 0:
        raise BadInput(f"{what} is {text!r}; expected a share above zero, such as 5% or 0.05")
    if value >= 1 and not (match and match[2]):
        raise BadInput(
            f"{what} is {text!r}, which could mean {number:g} % or {number * 100:g} %; write {number:g}%"
        )
    return value


def parse_tolerance(text: str, what: str) -> float:
    """A tolerance from `5%` or `0.05`; one above 50 % ends in an exclamation mark, `80%!`, to say that it is meant."""
    meant = text.rstrip().endswith("!")
    value = parse_fraction(text.rstrip().removesuffix("!"), what)
    try:
        refuse_wide(value, meant, f"write {value * 100:g}%!")
    except BadInput as error:
        raise BadInput(f"{what} is {text!r}: {error}") from None
    return value


def parse_duration(text: str, what: str) -> float:
    """A positive duration in seconds from `1800`, `90s`, `30m` or `1.5h`."""
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text.strip()[-1:])
    digits = text.strip()[:-1] if factor else text
    try:
        value = float(digits) * (factor or 1.0)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadInput(
            f"{what} is {text!r}; expected a duration above zero, such as 0.5, 90s, 30m or 1h"
        )
    return value


def moment(text: str) -> datetime.datetime | None:
    """A date or time in ISO 8601; without a zone it is UTC, without a time midnight. None where it is neither."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)


def format_day(time: datetime.datetime, now: datetime.datetime) -> str:
    """A day as people say it, with the year where that is not this one: `3 Nov`, `3 Nov 2025`."""
    year = f" {time.year}" if time.year != now.year else ""
    return f"{time.day} {time:%b}{year}"


def printable(text: str) -> str:
    """Text from ids, files and drivers in one line that cannot steer a terminal, nor what reads a log."""
    shown = (char if not steers(char) else repr(char)[1:-1] for char in text)
    return without_commands("".join(shown))


def printable_lines(text: str) -> str:
    """Text of several lines, of which none can steer a terminal, nor what reads a log."""
    return "\n".join(printable(line) for line in text.expandtabs().split("\n"))


def encodable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def steers(char: str) -> bool:
    """Whether a character ends a line, moves a cursor, or changes the order in which others are read."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")


# Commands of GitHub's runner, which begin a line, behind blanks; its older ones, Azure's and TeamCity's stand anywhere.
_COMMAND = re.compile(r"^((?:[^\S\n]|\x1b\[[\d;]*m)*):(?=:)|#(?=#\w*\[)", re.MULTILINE)


def without_commands(text: str, hash_sign: str = r"\x23") -> str:
    """Lines of which a CI takes none for a command, wherever they were broken: an escape stands for its first sign."""
    return _COMMAND.sub(lambda found: hash_sign if found[1] is None else rf"{found[1]}\x3a", text)


def listed(texts: Sequence[str], at_most: int, by: str = ", ") -> str:
    """The first of many: `a, b and 3 more`; with another separator than a comma `a; b; and 3 more`."""
    more = f"{by.replace(',', '')}and {len(texts) - at_most} more" if len(texts) > at_most else ""
    return by.join(texts[:at_most]) + more


def slug(text: str) -> str:
    """A lower-case name of letters, digits and hyphens, safe as a key and as a file name."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-") or "unknown"


def count(number: int, noun: str, plural: str = "s") -> str:
    """`1 process`, `3 processes`."""
    return f"{number} {noun}{plural * (number != 1)}"
