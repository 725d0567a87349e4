"""How much one measurement executes: what the issue asked for is kept."""


def test_a_measurement_executes_at_most_250_functions_in_40_files(program):
    counted = program("executed").count()
    assert {code.co_qualname for code in counted.measure} >= {
        "Roofline.measure",
        "measure_request",
        "Engine.run",
    }
    assert counted.measure < counted.call
    # Where the machine pauses, up to five more are called.
    assert len(counted.measure) <= 250
    assert len({code.co_filename for code in counted.measure}) <= 40
