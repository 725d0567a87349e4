"""An entry is used where a test of its benchmark with its parameters is; a published one may name only some of them."""

from pytest_roofline.baselines.files import PlannedTest, unused_entries

MIB = 2**20


def idle(entries, *planned):
    tests = [PlannedTest(benchmark, parameters) for benchmark, parameters in planned]
    return [(entry.label, "parameters" in why) for entry, why in unused_entries(entries, tests)]


def test_a_measured_entry_is_used_by_a_test_of_its_benchmark_and_parameters(make):
    label, size = "memcpy_d2d[64MiB]", {"size_bytes": 64 * MIB}
    for benchmark, parameters, found in [
        *(
            ("memcpy_d2d", size, []),
            ("memcpy_h2d", size, [(label, False)]),
            ("memcpy_d2d", {}, [(label, True)]),
        ),
        ("memcpy_d2d", {"size_bytes": MIB}, [(label, True)]),
        ("memcpy_d2d", size | {"dtype": "f"}, [(label, True)]),
    ]:
        assert idle([make.measured()], (benchmark, parameters)) == found, (benchmark, parameters)
    assert idle([make.measured(key=make.key(name="second"))], ("memcpy_d2d", size)) == []
    # One, true and a text are different parameters; their order does not matter.
    entry = make.measured(key=make.key(parameters={"n": 1, "b": 2}))
    for value, used in [(1, True), (1.0, False), (True, False), ("1", False)]:
        assert (idle([entry], ("memcpy_d2d", {"b": 2, "n": value})) == []) == used, value
    assert idle([make.measured(), make.published()]) == [(label, False), ("memcpy_d2d", False)]


def test_a_published_entry_is_used_where_what_it_names_is_there_or_a_program_made_it(make):
    tests = [
        ("memcpy_d2d", {"size_bytes": 4, "dtype": "g"}),
        ("memcpy_d2d", {"size_bytes": 8, "dtype": "f"}),
    ]
    for kind in ("threshold", "reference"):
        for parameters, used in [
            ({}, 1),
            ({"dtype": "f"}, 1),
            ({"size_bytes": MIB}, 0),
            ({"other": 1}, 0),
        ]:
            assert (idle([make.published(kind, parameters=parameters)], *tests) == []) == used, (
                kind,
                parameters,
            )
        made = make.published(kind, provenance={"made_by": "a program"})
        assert idle([made, make.published(kind)]) == [("memcpy_d2d", False)]
