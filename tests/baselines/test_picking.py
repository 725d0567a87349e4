from dataclasses import replace

import pytest

from pytest_roofline.baselines.picking import Choice, parse_moment, pick, scan
from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.core.errors import BadInput, OtherHardware


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
    header = replace(
        make.header(run_id or path.stem, driver=driver, **on), started=started, command=command
    )
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
        [
            ("550.54.14", "02-01"),
            ("550.54.15", "02-10"),
            ("550.90", "02-20"),
            ("570.86", "03-01"),
            ("570.86", "03-10"),
        ]
    ):
        save(
            make,
            folder / "runs" / f"r{number}.jsonl",
            driver=driver,
            started=f"2026-{date}T03:00:00Z",
        )
    return folder


def names(picked):
    runs, _ = picked
    return [run.header.run_id for run in runs]


def day(text):
    return parse_moment(text, "--before")


FEBRUARY, ALL = ["r0", "r1", "r2"], ["r0", "r1", "r2", "r3", "r4"]


def test_runs_are_chosen_by_their_driver_or_the_first_parts_of_it_and_by_when_they_began(saved):
    cases = [
        (Choice(), ALL),
        (Choice(driver="550"), FEBRUARY),
        (Choice(driver="550.54"), ["r0", "r1"]),
        (Choice(driver="550.54.14"), ["r0"]),
        (Choice(before=day("2026-02-10T03:00:00Z")), ["r0"]),
        (Choice(before=day("2026-02-10T03:00:01Z")), ["r0", "r1"]),
        (Choice(before=day("2026-02-10T04:00:00+02:00")), ["r0"]),
        (Choice(after=day("2026-03-01T03:00:00Z")), ["r3", "r4"]),
        (Choice(driver="550", after=day("2026-02-05")), ["r1", "r2"]),
    ]
    for choice, taken in cases:
        picked = scan(saved, choice)
        note = () if taken == ALL else (f"{len(taken)} of 5 runs match {choice}",)
        assert (choice, names(picked), picked[1]) == (choice, taken, note)
    runs = [read_run(path) for path in sorted((saved / "runs").glob("*.jsonl"))]
    assert names(pick(runs, Choice(driver="570"))) == ["r3", "r4"]
    # A piece of a number is no driver.
    for driver in ("55", "550.5", "550.54.145"):
        with pytest.raises(BadInput, match="no run matches"):
            scan(saved, Choice(driver=driver))


def test_nothing_that_matches_is_a_sentence_with_the_drivers_and_dates_there_are(make, saved):
    with pytest.raises(BadInput) as error:
        scan(saved, Choice(driver="560", before=day("2026-03-01")))
    assert str(error.value) == (
        "no run matches --driver 560 --before 2026-03-01T00:00:00+00:00; there are 5 runs with the driver 570.86 (2); "
        "550.54.14 (1); 550.54.15 (1); 550.90 (1), started from 2026-02-01T03:00+00:00 to 2026-03-10T03:00+00:00, "
        "on the hardware h200-sxm, 141gb"
    )


def test_a_run_without_a_date_or_a_driver_is_taken_by_no_choice_of_one(make, folder):
    save(make, folder / "runs" / "r.jsonl", started="one day", driver=None)
    assert names(scan(folder, Choice())) == ["r"]
    for choice in (
        Choice(before=day("9999-01-01")),
        Choice(after=day("0002-01-01")),
        Choice(driver="550"),
    ):
        with pytest.raises(
            BadInput, match="there is one run with the driver unknown, started at an unknown time"
        ):
            scan(folder, choice)


def test_a_folder_without_a_run_that_can_be_read_says_why(folder):
    with pytest.raises(
        BadInput, match=r"runs holds no run; record a run with `pytest --roofline-save=NAME`"
    ):
        scan(folder, Choice())
    (folder / "runs").mkdir(parents=True)
    (folder / "runs" / "broken.jsonl").write_text("{\n")
    with pytest.raises(
        BadInput, match=r"runs holds no run that can be used \(left out: run file .*broken"
    ):
        scan(folder, Choice())


def test_what_is_left_out_of_a_folder_is_named_with_the_reason(make, saved):
    runs = saved / "runs"
    strange = {
        "copy": ({"run_id": "r0"}, f"it is the same run as {runs / 'r0.jsonl'}"),
        "empty": ({"empty": True}, "it holds no measurement"),
        "fake": ({"device_type": "fake"}, "the run was measured on a fake device"),
        "nccl": (
            {"command": ("roofline", "import", "all_reduce.log")},
            "the run was imported from another tool",
        ),
    }
    for name, (facts, why) in strange.items():
        path = save(make, runs / f"s-{name}.jsonl", **facts)
        picked = scan(saved, Choice())
        assert (names(picked), picked[1]) == (ALL, (f"{path} is left out: {why}",))
        path.unlink()
    (runs / "broken.jsonl").write_text("{\n")
    picked = scan(saved, Choice())
    assert names(picked) == ALL
    assert "broken.jsonl, line 1 is not JSON" in picked[1][0]
    # Alone they are taken.
    for name in ("fake", "nccl"):
        save(make, saved / "alone" / "runs" / "one.jsonl", **strange[name][0])
        assert names(scan(saved / "alone", Choice())) == ["one"]


def test_hardware_is_chosen_by_its_key_or_words_of_it_and_several_are_refused(make, saved):
    h100 = make.hardware(product="h100-sxm5", memory="80gb")
    save(make, saved / "runs" / "slice.jsonl", hardware=make.hardware(partition="1g.18gb"))
    save(make, saved / "runs" / "h100.jsonl", hardware=h100, product="NVIDIA H100 80GB HBM3")
    cases = {
        "h100-sxm5": ["h100"],
        "1g.18gb": ["slice"],
        "h200-sxm 1g.18gb": ["slice"],
        "h200-sxm, 141gb, 1g.18gb": ["slice"],
        "h200-sxm, 141gb": ALL,
    }
    assert {product: names(scan(saved, Choice(product=product))) for product in cases} == cases
    with pytest.raises(OtherHardware) as error:
        scan(saved, Choice())
    assert str(error.value) == (
        "the runs are of different hardware: h200-sxm, 141gb (5); h100-sxm5, 80gb (1); h200-sxm, 141gb, 1g.18gb (1); "
        'expected one hardware; choose one with --product "h200-sxm, 141gb"'
    )
    with pytest.raises(OtherHardware, match=r"1g\.18gb"):
        scan(saved, Choice(product="h200-sxm"))
    with pytest.raises(
        BadInput,
        match=r"no run matches --product h20; there are 7 runs .* on the hardware h200-sxm, 141gb \(5\); h100",
    ):
        scan(saved, Choice(product="h20"))


def test_what_is_no_date_is_refused_with_an_example():
    for text in ("yesterday", "2026-02-30", ""):
        with pytest.raises(
            BadInput, match=r"--after is .*; expected a date or time in ISO 8601: 2026-03-01"
        ):
            parse_moment(text, "--after")
