import datetime
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.units import (
    format_amount,
    format_bytes,
    format_day,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_tolerance,
    listed,
    moment,
    parse_duration,
    parse_fraction,
    printable,
    size_label,
    slug,
)

UNIT_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def test_numbers_are_shown_in_the_unit_that_fits():
    for shown, cases in {
        # Only exact binary multiples are shortened.
        format_bytes: [
            (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1 KiB"), (1025, "1025 B"), (4096, "4 KiB"),
            (64 * 2**20, "64 MiB"), (2**30, "1 GiB"), (2**30 + 2**20, "1025 MiB"), (2_101_346_304, "2004 MiB"),
            (2_101_346_305, "2101346305 B"),
        ],
        size_label: [(64 * 2**20, "64MiB")],
        format_amount: [
            (0, "0 B"), (999, "999 B"), (312e6, "312 MB"), (4.2e9, "4.20 GB"), (1500, "1.50 kB"),
        ],
        # What rounds up keeps three digits.
        format_seconds: [
            (512e-9, "512 ns"), (1.34e-6, "1.34 µs"), (21e-3, "21.0 ms"), (3.0, "3.00 s"), (1e-3, "1.00 ms"),
            (1e-12, "0.001 ns"), (3600, "3600 s"), (9.999e-3, "10.0 ms"), (99.96e-6, "100 µs"), (999.6e-9, "1.00 µs"),
            (999.6e-6, "1.00 ms"), (0.9996, "1.00 s"),
        ],
        format_rate: [
            (1511e9, "1511 GB/s"), (0.412e9, "0.412 GB/s"), (12.34e9, "12.3 GB/s"), (1.234e9, "1.23 GB/s"),
        ],
        format_flops: [(359e12, "359 TFLOP/s"), (12.1e9, "12.1 GFLOP/s"), (1e12, "1.00 TFLOP/s")],
        format_percent: [(0.251, "+25.1 %"), (-0.0004, "-0.0 %"), (-0.25, "-25.0 %")],
        format_tolerance: [(0.05, "5 %"), (0.025, "2.5 %"), (2.0, "200 %")],
        slug: [
            ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
            ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-r-xeon-r-cpu-2-20ghz"), ("../../etc/passwd", "etc-passwd"),
            ("Prozessor für Ähren", "prozessor-fur-ahren"), ("", "unknown"), ("…/..", "unknown"),
        ],
        # Characters that steer a terminal are spelled out.
        printable: [
            ("memcpy[64MiB] µs …", "memcpy[64MiB] µs …"), ("\x1b[31mred", "\\x1b[31mred"),
            ("two\nlines\r", "two\\nlines\\r"), ("\x9b31m", "\\x9b31m"), ("right\u202eleft", "right\\u202eleft"),
            ("line\u2028end", "line\\u2028end"), ("half\ud800", "half\\ud800"), ("nul\x00", "nul\\x00"),
            # As is what a CI takes for a command: GitHub's at the beginning of a line, others anywhere.
            ("::error::x", "\\x3a:error::x"), ("\u3000 ::x", "\u3000 \\x3a:x"), ("a.py::test ::x", "a.py::test ::x"),
            ("a ##[set-env]", "a \\x23#[set-env]"), ("###vso[x]", "#\\x23#vso[x]"), ("## [x] #[y]", "## [x] #[y]"),
        ],
    }.items():  # fmt: skip
        for value, text in cases:
            assert shown(value) == text, (shown, value)
    assert [listed("abc", 3), listed("abcd", 3), listed([], 3)] == [
        "a, b, c",
        "a, b, c and 1 more",
        "",
    ]
    assert listed("abcd", 2, "; ") == "a; b; and 2 more"


@given(
    st.integers(0, 2**50), st.floats(1e-9, 100.0), st.floats(1e-3, 500), st.text(st.characters())
)
def test_what_is_shown_gives_its_value_back_and_steers_nothing(size_bytes, seconds, number, text):
    amount, unit = format_bytes(size_bytes).split(" ")
    assert size_bytes == int(amount) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
    amount, unit = format_seconds(seconds).split(" ")
    assert float(amount) * UNIT_SECONDS[unit] == pytest.approx(seconds, rel=0.0051)
    assert parse_fraction(f"{number!r}%", "tolerance") == pytest.approx(number / 100)
    for unit, factor in [("s", 1), ("m", 60), ("h", 3600), ("", 1)]:
        assert parse_duration(f"{number!r}{unit}", "time") == pytest.approx(number * factor)
    assert not {unicodedata.category(char) for char in printable(text)} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }
    assert printable(text) == printable(printable(text))
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(text))


def test_shares_and_durations_are_read_in_the_ways_that_people_write_them():
    for read, cases in {
        parse_fraction: [
            ("5%", 0.05), ("0.05", 0.05), (" 5 % ", 0.05), ("2.5%", 0.025), ("1e-2", 0.01), ("200%", 2.0),
        ],
        parse_duration: [
            ("1800", 1800.0), ("0.5", 0.5), ("90s", 90.0), ("30m", 1800.0), ("1h", 3600.0), ("1.5h", 5400.0),
            (" 2m ", 120.0), ("1e3s", 1000.0),
        ],
    }.items():  # fmt: skip
        for text, value in cases:
            assert read(text, "option") == pytest.approx(value), (read, text)


def test_what_is_no_share_or_duration_is_refused_with_an_example():
    for read, expected, texts in [
        (parse_fraction, "; expected a share such as 5% or 0.05", [
            "", "%", "five", "nan", "inf", "1e999%", "5%%", "0x5", "1,5", "5\x00"]),
        (parse_fraction, "; expected a share above zero, such as 5% or 0.05", ["0", "-5%", "1e-999"]),
        (parse_fraction, ", which could mean 5 % or 500 %; write 5%", ["5"]),
        (parse_duration, "; expected a duration above zero, such as 0.5, 90s, 30m or 1h", [
            "", "m", "0h", "-30m", "nan", "infh", "1e999h", "2d", "2hh", "1h30m"]),
    ]:  # fmt: skip
        for text in texts:
            with pytest.raises(BadInput) as error:
                read(text, "--roofline-option")
            assert str(error.value) == f"--roofline-option is {text!r}{expected}"


def test_a_moment_without_a_zone_is_utc_and_without_a_time_midnight():
    for text, utc in [
        ("2026-03-01", "2026-03-01T00:00:00+00:00"),
        ("2026-03-01T06:30Z", "2026-03-01T06:30:00+00:00"),
        ("2026-03-01T06:30:00+02:00", "2026-03-01T04:30:00+00:00"),
        ("2026-03-01T06:30", "2026-03-01T06:30:00+00:00"),
    ]:
        assert moment(text).astimezone(datetime.UTC).isoformat() == utc
    assert [moment(text) for text in ("", "yesterday", "2026-13-01", "1767225600")] == [None] * 4


def test_a_day_is_told_with_its_year_where_that_is_not_this_one():
    night = datetime.datetime(2026, 11, 3, 3, tzinfo=datetime.UTC)
    assert format_day(night, night.replace(month=12)) == "3 Nov"
    assert format_day(night, night.replace(year=2027)) == "3 Nov 2026"
