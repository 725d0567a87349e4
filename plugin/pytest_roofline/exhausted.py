"""What ran out of memory in a run: the state that verdicts, reports and the closing table ask for."""

from .reporting.exhausted import RanOut


class Exhausted:
    """Everything of a run that ran out of memory."""

    def __init__(self) -> None:
        self.found: list[RanOut] = []

    def add(self, ran_out: RanOut) -> bool:
        """Note it, and whether it is new; a rerun or a later round cannot shake off a red one."""
        for index, known in enumerate(self.found):
            if (known.record.test_id, known.record.name) == (ran_out.record.test_id, ran_out.record.name):
                self.found[index] = known if known.red else ran_out
                return False
        self.found.append(ran_out)
        return True

    def forget_unrecorded(self, test_id: str) -> None:
        """A test begins anew: what merely failed an attempt before says nothing of this one."""
        self.found = [one for one in self.found if one.record.test_id != test_id or one.record.recorded]

    def of(self, test_id: str) -> list[RanOut]:
        """What is known of a test."""
        return [one for one in self.found if one.record.test_id == test_id]

    def red(self, test_id: str) -> bool:
        """Whether a test fails for it by verdict."""
        return any(one.red for one in self.of(test_id))
