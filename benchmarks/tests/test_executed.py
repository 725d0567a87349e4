"""The functions that one measurement executes, and the two lines that count them."""


def test_the_call_of_measure_is_a_part_of_the_call_phase(program):
    counted = program("executed").count()
    assert {code.co_qualname for code in counted.measure} >= {
        "Roofline.measure",
        "measure_request",
        "Engine.run",
    }
    assert counted.measure < counted.call


def test_the_program_prints_functions_and_files_of_both(program, monkeypatch, capsys):
    executed = program("executed")
    counted = executed.Counted()
    counted.measure = {executed.count.__code__}
    counted.call = {
        executed.count.__code__,
        executed.main.__code__,
        test_the_call_of_measure_is_a_part_of_the_call_phase.__code__,
    }
    monkeypatch.setattr(executed, "count", lambda: counted)
    monkeypatch.setattr("sys.argv", ["executed.py"])
    executed.main()
    assert capsys.readouterr().out.splitlines() == [
        "roofline.measure: 1 functions in 1 files",
        "the whole call phase: 3 functions in 2 files",
    ]
