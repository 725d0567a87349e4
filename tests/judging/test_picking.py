import datetime
from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.units import moment
from pytest_roofline.judging.picking import Choice, parse_moment, pick, scan
from pytest_roofline.judging.runs import encode_line, read_run

UTC = datetime.UTC


def save(
    make,
    path,
    *,
    started="2026-02-01T03:00:00Z",
    driver="570.86.10",
    hardware=None,
    run_id=None,
    empty=False,
    command=("pytest",),
    **on,
):
    """A run file of one measurement."""
    header = replace(make.header(run_id or path.stem, driver=driver, **on), started=started, command=command)
    measurement = make.measurement(key=make.key(hardware=hardware or make.hardware()))
    records = [header] if empty else [header, measurement, make.outcome(measurement)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(map(encode_line, records)), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / ".roofline"


@pytest.fixture
def saved(make, folder):
    """Three runs of one driver in February, two of the next in March."""
    for number, (driver, date) in enumerate(
        [("550.54.14", "02-01"), ("550.54.15", "02-10"), ("550.90", "02-20"), ("570.86", "03-01"), ("570.86", "03-10")]
    ):
        save(make, folder / "runs" / f"r{number}.jsonl", driver=driver, started=f"2026-{date}T03:00:00Z")
    return folder


def names(picked):
    return [run.header.run_id for run in picked.runs]


def day(text):
    return parse_moment(text, "--before")


def test_without_a_choice_all_saved_runs_are_taken(saved):
    picked = scan(saved, Choice())
    assert (names(picked), picked.notes) == (["r0", "r1", "r2", "r3", "r4"], ())


@pytest.mark.parametrize(
    ("driver", "taken"),
    [
        ("550", ["r0", "r1", "r2"]),
        ("550.54", ["r0", "r1"]),
        ("550.54.14", ["r0"]),
        ("550.", ["r0", "r1", "r2"]),
        ("570.86", ["r3", "r4"]),
    ],
)
def test_a_driver_is_chosen_by_its_version_or_the_first_parts_of_it(saved, driver, taken):
    assert names(scan(saved, Choice(driver=driver))) == taken


@pytest.mark.parametrize("driver", ["55", "550.5", "50", "550.54.145", "5500"])
def test_a_piece_of_a_number_is_no_driver(saved, driver):
    with pytest.raises(BadInput, match="no run matches"):
        scan(saved, Choice(driver=driver))


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (Choice(before=day("2026-02-10")), ["r0"]),
        (Choice(before=day("2026-02-10T03:00:00Z")), ["r0"]),
        (Choice(before=day("2026-02-10T03:00:01Z")), ["r0", "r1"]),
        (Choice(after=day("2026-03-01")), ["r3", "r4"]),
        (Choice(after=day("2026-03-01T03:00:00Z")), ["r3", "r4"]),
        (Choice(after=day("2026-03-01T03:00:01Z")), ["r4"]),
        (Choice(after=day("2026-02-05"), before=day("2026-03-05")), ["r1", "r2", "r3"]),
        (Choice(driver="550", after=day("2026-02-05")), ["r1", "r2"]),
        (Choice(before=day("2026-02-10T04:00:00+02:00")), ["r0"]),
    ],
)
def test_runs_are_chosen_by_when_they_began(saved, choice, taken):
    assert names(scan(saved, choice)) == taken


def test_how_many_were_chosen_is_noted(saved):
    assert scan(saved, Choice(driver="550")).notes == ("3 of 5 runs match --driver 550",)


def test_nothing_that_matches_is_a_sentence_with_the_drivers_and_dates_there_are(saved):
    with pytest.raises(BadInput) as error:
        scan(saved, Choice(driver="560", before=day("2026-03-01")))
    assert str(error.value) == (
        "no run matches --driver 560 --before 2026-03-01T00:00:00+00:00; there are 5, of driver 570.86 (2); "
        "550.54.14 (1); 550.54.15 (1); 550.90 (1), begun from 2026-02-01T03:00+00:00 to 2026-03-10T03:00+00:00, "
        "on h200-sxm, 141gb"
    )


def test_a_run_without_a_date_is_neither_before_nor_after(make, folder):
    save(make, folder / "runs" / "r.jsonl", started="one day")
    assert names(scan(folder, Choice())) == ["r"]
    for choice in (Choice(before=day("9999-01-01")), Choice(after=day("0002-01-01"))):
        with pytest.raises(BadInput, match="begun nobody knows when"):
            scan(folder, choice)


def test_a_device_without_a_driver_has_none_to_choose(make, folder):
    save(make, folder / "runs" / "r.jsonl", driver=None)
    with pytest.raises(BadInput, match="there is one, of driver unknown"):
        scan(folder, Choice(driver="550"))


def test_named_runs_are_chosen_from_too(saved):
    runs = [read_run(path) for path in sorted((saved / "runs").glob("*.jsonl"))]
    picked = pick(runs, Choice(driver="570"))
    assert (names(picked), picked.notes) == (["r3", "r4"], ("2 of 5 runs match --driver 570",))


def test_an_empty_folder_says_how_to_record_a_run(folder):
    with pytest.raises(BadInput, match=r"no run in .*runs; record one with `pytest --roofline-save=NAME`"):
        scan(folder, Choice())


def test_a_file_that_cannot_be_read_is_named_and_left_out(saved):
    (saved / "runs" / "broken.jsonl").write_text("{\n")
    picked = scan(saved, Choice())
    assert names(picked) == ["r0", "r1", "r2", "r3", "r4"]
    (note,) = picked.notes
    assert note.startswith("left out: run file ")
    assert "broken.jsonl, line 1 is not JSON" in note


def test_a_folder_of_broken_files_says_what_is_wrong_with_them(folder):
    (folder / "runs").mkdir(parents=True)
    (folder / "runs" / "broken.jsonl").write_text("{\n")
    with pytest.raises(BadInput, match=r"no run in .* that can be used \(left out: run file .*broken"):
        scan(folder, Choice())


def test_a_copy_of_a_run_counts_once(make, saved):
    save(make, saved / "runs" / "s.jsonl", run_id="r0")
    picked = scan(saved, Choice())
    assert names(picked) == ["r0", "r1", "r2", "r3", "r4"]
    assert picked.notes == (
        f"{saved / 'runs' / 's.jsonl'} is left out: it is the same run as {saved / 'runs' / 'r0.jsonl'}",
    )


def test_a_run_that_measured_nothing_is_left_out(make, saved):
    save(make, saved / "runs" / "s.jsonl", empty=True)
    picked = scan(saved, Choice())
    assert "s" not in names(picked)
    assert picked.notes == (f"{saved / 'runs' / 's.jsonl'} is left out: it holds no measurement",)


def test_runs_of_a_fake_device_are_left_out_where_there_are_real_ones(make, saved):
    save(make, saved / "runs" / "fake.jsonl", device_type="fake")
    picked = scan(saved, Choice())
    assert "fake" not in names(picked)
    assert picked.notes == (f"{saved / 'runs' / 'fake.jsonl'} is left out: it is of a fake device",)


def test_imported_runs_are_left_out_where_there_are_others(make, saved):
    save(make, saved / "runs" / "nccl.jsonl", command=("roofline", "import", "all_reduce.log"))
    picked = scan(saved, Choice())
    assert "nccl" not in names(picked)
    assert picked.notes == (f"{saved / 'runs' / 'nccl.jsonl'} is left out: it was imported from another tool",)


def test_imported_runs_alone_are_taken(make, folder):
    save(make, folder / "runs" / "nccl.jsonl", command=("roofline", "import", "all_reduce.log"))
    assert names(scan(folder, Choice())) == ["nccl"]


def test_runs_of_a_fake_device_alone_are_taken(make, folder):
    save(make, folder / "runs" / "fake.jsonl", device_type="fake")
    assert names(scan(folder, Choice())) == ["fake"]


def partition(make):
    return make.hardware(partition="1g.18gb")


def h100(make):
    return make.hardware(product="h100-sxm5", memory="80gb")


@pytest.fixture
def mixed(make, saved):
    """The five runs, one of a slice of the same product, one of another product."""
    save(make, saved / "runs" / "slice.jsonl", hardware=partition(make))
    save(make, saved / "runs" / "h100.jsonl", hardware=h100(make), product="NVIDIA H100 80GB HBM3")
    return saved


def test_several_hardware_are_refused_with_their_keys_and_how_to_choose(mixed):
    with pytest.raises(OtherHardware) as error:
        scan(mixed, Choice())
    assert str(error.value) == (
        "the runs are of different hardware: h200-sxm, 141gb (5); h100-sxm5, 80gb (1); h200-sxm, 141gb, 1g.18gb (1); "
        'expected one, choose it with --product "h200-sxm, 141gb"'
    )


@pytest.mark.parametrize(
    ("product", "taken"),
    [
        ("h100-sxm5", ["h100"]),
        ("1g.18gb", ["slice"]),
        ("h200-sxm 1g.18gb", ["slice"]),
        ("h200-sxm, 141gb, 1g.18gb", ["slice"]),
        ("h200-sxm, 141gb", ["r0", "r1", "r2", "r3", "r4"]),
    ],
)
def test_hardware_is_chosen_by_its_key_or_words_of_it(mixed, product, taken):
    assert names(scan(mixed, Choice(product=product))) == taken


def test_a_product_that_names_several_keys_is_refused(mixed):
    with pytest.raises(OtherHardware, match=r"1g\.18gb"):
        scan(mixed, Choice(product="h200-sxm"))


def test_a_part_of_a_products_name_is_another_product(mixed):
    with pytest.raises(
        BadInput, match=r"no run matches --product h20; there are 7, .* on h200-sxm, 141gb \(5\); h100-sxm5"
    ):
        scan(mixed, Choice(product="h20"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", datetime.datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T06:30", datetime.datetime(2026, 3, 1, 6, 30, tzinfo=UTC)),
        ("2026-03-01T06:30Z", datetime.datetime(2026, 3, 1, 6, 30, tzinfo=UTC)),
        ("2026-03-01T06:30+02:00", datetime.datetime(2026, 3, 1, 4, 30, tzinfo=UTC)),
        ("", None),
        ("yesterday", None),
        ("2026-13-01", None),
    ],
)
def test_a_date_is_its_midnight_in_utc(text, expected):
    assert moment(text) == expected


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "1", ""])
def test_what_is_no_date_is_refused_with_an_example(text):
    with pytest.raises(BadInput, match=r"--after is .*; expected a date or time in ISO 8601: 2026-03-01"):
        parse_moment(text, "--after")
