"""How much one measurement executes: what the issue asked for is kept."""

# Called or not as the machine's pauses fall; with all of them it is still 250.
BY_CHANCE = {"_rises_or_falls", "Agreement.everyone", "Engine._slow_for_good", "Sizing.at_once"}


def test_a_measurement_executes_at_most_250_functions_in_40_files(program):
    counted = program("executed").count()
    assert {code.co_qualname for code in counted.measure} >= {"Roofline.measure", "measure_request", "Engine.run"}
    assert counted.measure < counted.call
    assert len([code for code in counted.measure if code.co_qualname not in BY_CHANCE]) + len(BY_CHANCE) <= 250
    assert len({code.co_filename for code in counted.measure}) <= 40
