"""The sides of candidates: made when they are measured, and removed afterwards.

Both ends stay, since each step measures them again. A candidate goes when its step ends. Nothing is written into the
checkout or the present environment.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..ab.sides import LISTED, NOTHING, PLUGIN, PreparedSide, SideSpec, parse_side, prepare_sides
from ..core.errors import BadInput, CannotStore
from ..core.units import format_bytes, listed, printable
from .differences import SettingGroup, group_text, settings_of
from .search import Place
from .state import BisectState

# Bytes that stay free on the disk of temporary files.
RESERVE_BYTES = 256 * 2**20


class Environments:
    """The sides of a search.

    Args:
        state: of the search, with its row of candidates.
        groups: the differences of two runs; none for versions and commits.
    """

    def __init__(self, state: BisectState, groups: Sequence[SettingGroup] = ()) -> None:
        """Prepare to make the sides of a search's candidates."""
        self._state, self._groups = state, groups
        # A side of tests must be able to import this plugin; one of a program need not.
        self._module = PLUGIN if state.program is None else NOTHING
        # The disk space of the largest candidate so far.
        self._largest_bytes = 0

    def names_in(self, row: Sequence[Place]) -> list[str]:
        """Return the names of candidates.

        These are their sides, or the differences that the candidate before has not.
        """
        if not self._groups:
            return [self._state.row[number] for (number,) in row]
        differences = [
            tuple(number for number in place if number not in before)
            for before, place in zip([(), *row], row, strict=False)
        ]
        return list(map(self.name_of, differences))

    def name_of(self, place: Place) -> str:
        """Return some differences in words."""
        return (
            "; ".join(group_text(self._groups[number]) for number in place)
            or "none of the differences"
        )

    @contextlib.contextmanager
    def sides(self, places: Mapping[str, Place]) -> Iterator[dict[str, PreparedSide]]:
        """Yield the sides of some candidates, the environments to run them in, by name. They are removed afterwards.

        Raises:
            BadInput: one cannot be made.
            CannotStore: the disk is too full.
        """
        free_bytes = shutil.disk_usage(tempfile.gettempdir()).free
        needed_bytes = self._largest_bytes + RESERVE_BYTES
        if free_bytes < needed_bytes:
            raise CannotStore(
                f"{tempfile.gettempdir()} has {format_bytes(free_bytes)} free; expected "
                f"{format_bytes(needed_bytes)} for a candidate; free disk space, or set TMPDIR to another disk"
            )
        specs = {name: self._spec_of(place) for name, place in places.items()}
        with prepare_sides(specs, Path(self._state.cwd), self._module) as sides:
            used_bytes = free_bytes - shutil.disk_usage(tempfile.gettempdir()).free
            # The next candidate is taken to need as much as the largest so far.
            self._largest_bytes = max(self._largest_bytes, used_bytes // len(places))
            yield sides

    def _spec_of(self, place: Place) -> SideSpec:
        """Return the side of a candidate.

        It is a version, a commit, or the settings that its differences give.
        """
        if not self._groups:
            (number,) = place
            return parse_side(self._state.row[number])
        requirements, variables = settings_of(self._groups, place)
        return SideSpec(
            self.name_of(place), LISTED, requirements=tuple(requirements), variables=variables
        )


@contextlib.contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process, and restore them afterwards.

    Raises:
        BadInput: a name or a value, which may come from a file, cannot be set.
    """
    before = dict(os.environ)
    try:
        os.environ.update(variables)
    except (OSError, ValueError) as error:
        os.environ.clear()
        os.environ.update(before)
        raise BadInput(
            f"the variables {printable(listed(sorted(variables), 3))} cannot be set: {error}; expected names without "
            "an equals sign"
        ) from None
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
