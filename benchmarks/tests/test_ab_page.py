"""The page says of each promise whether it was kept, by what the command told."""


def told(*rows, wall=230.0, controls=1):
    tests = [{"label": label, "verdict": verdict, "hardware": "a CPU"} for label, verdict in rows]
    seconds = {"all": wall, "A": 90.0, "B": 90.0, "warming A": 10.0, "warming B": 10.0}
    return {
        "tests": tests,
        "seconds": seconds,
        "processes": {"A": 8, "B": 8, "control": controls},
        "sentence": "RED",
    }


def test_what_was_found_what_was_false_and_what_took_too_long_is_said(program):
    made = program("ab_page")
    seeded = told(
        ("copies[changed-64]", "REGRESSED"),
        ("copies[changed-256]", "PASSED"),
        ("copies[same-64]", "REGRESSED"),
    )
    same = told(("memcpy[4KiB]", "PASSED"), ("memcpy[8KiB]", "REGRESSED"), wall=231.0, controls=2)
    assert made.took(seeded) == (2.3, 1, 4)
    text = made.page(made.Told(seeded, "| one |"), made.Told(same, "| two |"))
    assert (
        "Of 2 tests of it 1 are REGRESSED; of the others, which are the same on both sides,\n1. RED."
        in text
    )
    assert "at most eight processes a side:\n1 of 2 tests are REGRESSED, each by chance" in text
    assert "| seeded | 230 s | 100 s | 2.30 | 1 of 4 |" in text
    assert "| against itself | 231 s | 100 s | 2.31, missed | 2 of 4, missed |" in text
    assert (
        text.index("| one |")
        < text.index("## This checkout against itself")
        < text.index("| two |")
    )
