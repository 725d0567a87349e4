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
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_tolerance,
    listed,
    moment,
    parse_duration,
    parse_fraction,
    parse_seconds,
    printable,
    size_label,
    slug,
)

UNIT_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def test_only_exact_binary_multiples_are_shortened():
    for size_bytes, text in [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1025 B"),
        (4096, "4 KiB"),
        (64 * 2**20, "64 MiB"),
        (2**30, "1 GiB"),
        (2**30 + 2**20, "1025 MiB"),
        (2_101_346_304, "2004 MiB"),
        (2_101_346_305, "2101346305 B"),
    ]:
        assert text == format_bytes(size_bytes), (size_bytes, text)


@given(st.integers(0, 2**50))
def test_a_formatted_size_gives_its_bytes_back(size_bytes):
    number, unit = format_bytes(size_bytes).split(" ")
    assert size_bytes == int(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]


def test_a_size_in_a_test_id_has_no_space():
    assert size_label(64 * 2**20) == "64MiB"


def test_an_amount_is_rounded_in_decimal_units():
    for size_bytes, text in [(0, "0 B"), (999, "999 B"), (312e6, "312 MB"), (4.2e9, "4.20 GB"), (1500, "1.50 kB")]:
        assert text == format_amount(size_bytes), (size_bytes, text)


def test_a_duration_is_shown_in_the_unit_that_fits():
    for seconds, text in [
        (512e-9, "512 ns"),
        (1.34e-6, "1.34 µs"),
        (21e-3, "21.0 ms"),
        (3.0, "3.00 s"),
        (1e-3, "1.00 ms"),
        (1e-12, "0.001 ns"),
        (3600, "3600 s"),
    ]:
        assert text == format_seconds(seconds), (seconds, text)


@given(st.floats(1e-9, 100.0))
def test_a_formatted_duration_is_within_half_a_percent(seconds):
    number, unit = format_seconds(seconds).split(" ")
    assert float(number) * UNIT_SECONDS[unit] == pytest.approx(seconds, rel=0.0051)


def test_a_duration_that_rounds_up_keeps_three_digits():
    for seconds, text in [
        (9.999e-3, "10.0 ms"),
        (99.96e-6, "100 µs"),
        (999.6e-9, "1.00 µs"),
        (999.6e-6, "1.00 ms"),
        (0.9996, "1.00 s"),
    ]:
        assert text == format_seconds(seconds), (seconds, text)


def test_a_rate_counts_a_gigabyte_as_1e9_bytes():
    for rate, text in [(1511e9, "1511 GB/s"), (0.412e9, "0.412 GB/s"), (12.34e9, "12.3 GB/s"), (1.234e9, "1.23 GB/s")]:
        assert text == format_rate(rate), (rate, text)


def test_arithmetic_throughput_is_in_flop_per_second():
    for rate, text in [(359e12, "359 TFLOP/s"), (12.1e9, "12.1 GFLOP/s"), (1e12, "1.00 TFLOP/s")]:
        assert text == format_flops(rate), (rate, text)


def test_a_change_carries_its_sign():
    for change, text in [(0.251, "+25.1 %"), (-0.0004, "-0.0 %"), (-0.25, "-25.0 %")]:
        assert text == format_percent(change), (change, text)


def test_a_tolerance_has_no_needless_zeros():
    for share, text in [(0.05, "5 %"), (0.025, "2.5 %"), (2.0, "200 %")]:
        assert text == format_tolerance(share), (share, text)


def test_a_share_is_read_with_and_without_percent():
    for text, share in [
        ("5%", 0.05),
        ("0.05", 0.05),
        (" 5 % ", 0.05),
        ("2.5%", 0.025),
        ("1e-2", 0.01),
        ("200%", 2.0),
        ("100%", 1.0),
    ]:
        assert share == pytest.approx(parse_fraction(text, "tolerance")), (text, share)


@given(st.floats(0.001, 500))
def test_a_share_reads_back_as_it_was_written(percent):
    assert parse_fraction(f"{percent!r}%", "tolerance") == pytest.approx(percent / 100)


def test_what_is_no_share_is_refused_with_an_example():
    for text in [
        "",
        " ",
        "%",
        "five",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "1e999%",
        "5%%",
        "5 percent",
        "0x5",
        "1,5",
        "--5",
        "5\x00",
    ]:
        with pytest.raises(BadInput) as error:
            parse_fraction(text, "--roofline-tolerance")
        assert str(error.value) == f"--roofline-tolerance is {text!r}; expected a share such as 5% or 0.05", text


def test_a_share_must_be_above_zero():
    for text in ["0", "0%", "-5%", "-0.05", "-0", "1e-999"]:
        with pytest.raises(BadInput) as error:
            parse_fraction(text, "tolerance")
        assert str(error.value) == f"tolerance is {text!r}; expected a share above zero, such as 5% or 0.05", text


def test_a_bare_number_above_one_names_both_readings():
    with pytest.raises(BadInput) as error:
        parse_fraction("5", "tolerance")
    assert str(error.value) == "tolerance is '5', which could mean 5 % or 500 %; write 5%"


def test_seconds_are_read_with_and_without_their_unit():
    for text, seconds in [("2", 2.0), ("0.5", 0.5), ("2s", 2.0), (" 2s ", 2.0), ("1e-3", 0.001)]:
        assert seconds == parse_seconds(text, "budget"), (text, seconds)


def test_what_is_no_positive_duration_is_refused_with_an_example():
    for text in ["", "s", "2ss", "2 m", "nan", "nans", "inf", "infs", "0", "-1", "-0", "1e999", "two"]:
        with pytest.raises(BadInput) as error:
            parse_seconds(text, "--roofline-budget")
        expected = f"--roofline-budget is {text!r}; expected a number of seconds above zero, such as 1 or 0.5"
        assert str(error.value) == expected, text


def test_a_duration_is_in_seconds_minutes_or_hours():
    for text, seconds in [
        ("1800", 1800.0),
        ("0.5", 0.5),
        ("90s", 90.0),
        ("30m", 1800.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        (" 2m ", 120.0),
        ("1e3s", 1000.0),
    ]:
        assert seconds == parse_duration(text, "time"), (text, seconds)


@given(st.floats(1e-3, 1e6), st.sampled_from([("s", 1), ("m", 60), ("h", 3600), ("", 1)]))
def test_a_duration_reads_in_every_unit(number, unit):
    assert parse_duration(f"{number!r}{unit[0]}", "time") == pytest.approx(number * unit[1])


NO_DURATIONS = [
    *("", " ", "m", "0", "0h", "-1", "-30m", "nan", "nanm", "inf", "infh", "1e999h"),
    *("2d", "10ms", "2hh", "1h30m", "half an hour"),
]


def test_what_is_no_duration_above_zero_is_refused_with_examples():
    for text in NO_DURATIONS:
        with pytest.raises(BadInput) as error:
            parse_duration(text, "--roofline-time")
        expected = f"--roofline-time is {text!r}; expected a duration above zero, such as 1800, 90s, 30m or 1h"
        assert str(error.value) == expected, text


def test_a_moment_without_a_zone_is_utc_and_without_a_time_midnight():
    for text, utc in [
        ("2026-03-01", "2026-03-01T00:00:00+00:00"),
        ("2026-03-01T06:30Z", "2026-03-01T06:30:00+00:00"),
        ("2026-03-01T06:30:00+02:00", "2026-03-01T04:30:00+00:00"),
        ("2026-03-01T06:30", "2026-03-01T06:30:00+00:00"),
    ]:
        assert moment(text).astimezone(datetime.UTC).isoformat() == utc, (text, utc)


def test_what_is_no_iso_8601_is_no_moment():
    for text in ["", "yesterday", "2026-13-01", "1767225600"]:
        assert moment(text) is None, text


def test_of_many_texts_the_first_are_listed():
    assert [listed("abc", 3), listed("abcd", 3), listed([], 3)] == ["a, b, c", "a, b, c and 1 more", ""]
    assert listed("abcd", 2, "; ") == "a; b; and 2 more"


def test_characters_that_steer_a_terminal_are_spelled_out():
    for text, shown in [
        ("memcpy[64MiB] µs …", "memcpy[64MiB] µs …"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("line\u2028end", "line\\u2028end"),
        ("half\ud800", "half\\ud800"),
        ("nul\x00", "nul\\x00"),
    ]:
        assert shown == printable(text), (text, shown)


@given(st.text(st.characters()))
def test_printable_text_holds_nothing_that_steers(text):
    assert not {unicodedata.category(char) for char in printable(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text())
def test_printable_text_stays_as_it_is_the_second_time(text):
    assert printable(text) == printable(printable(text))


def test_a_slug_is_lower_case_with_hyphens():
    for text, name in [
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "intel-r-xeon-r-cpu-2-20ghz"),
        ("../../etc/passwd", "etc-passwd"),
        ("Prozessor für Ähren", "prozessor-fur-ahren"),
        ("", "unknown"),
        ("…/..", "unknown"),
    ]:
        assert name == slug(text), (text, name)


@given(st.text(st.characters()))
def test_a_slug_is_always_safe_as_a_file_name(text):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug(text))
