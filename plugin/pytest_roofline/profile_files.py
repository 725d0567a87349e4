"""Where the trace and the page of a profile lie."""

import shutil
from dataclasses import replace
from pathlib import Path

from .core.errors import CannotStore
from .core.profiles import Profile
from .core.units import slug
from .judging.writing import write_atomically
from .planned import encodable
from .reporting.profile_pages import markdown
from .session import RooflineSession

# So much of an error stands in a sentence.
LONGEST_WORDS = 300
# A file name may have 255 bytes, and a number, an ending and what a file has while it is written come beside this.
MOST_NAME = 200
TRACE = ".trace.json.gz"


def kept(session: RooflineSession, profile: Profile, trace: Path) -> Profile:
    """A profile with its trace and its page in their place; where they cannot be written it says so, and stands."""
    moved = ""
    try:
        path = trace_path(session, profile.label)
        moved = str(shutil.move(trace, path))
        write_atomically(path.with_name(path.name.removesuffix(TRACE) + ".md"), markdown(profile))
    except (OSError, CannotStore) as error:
        why = encodable(str(error))[:LONGEST_WORDS]
        what = "the page" if moved else "trace and page"
        profile = replace(profile, missing=(*profile.missing, f"{what}: not written, since {why}"))
    return replace(profile, trace=moved)


def trace_path(session: RooflineSession, label: str) -> Path:
    """Where a trace goes, in a folder of this run that is made and that git does not see.

    Raises:
        OSError: the folder cannot be made.
    """
    profiles = _profiles_folder(session)
    folder = profiles / session.run_name
    folder.mkdir(parents=True, exist_ok=True)
    ignore = profiles / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    name = slug(label)[:MOST_NAME]
    # Names of tests may differ in signs alone, or behind what a file name has room for.
    taken = sum(1 for path in folder.glob(f"*{TRACE}") if path.name.split("~")[0].split(".")[0] == name)
    return folder / f"{name}{f'~{taken + 1}' if taken else ''}{TRACE}"


def _profiles_folder(session: RooflineSession) -> Path:
    """Beside the run files; where the run had to go elsewhere, there."""
    usual, written = session.options.folder, session.writer.path
    if written is None or written.parent == usual / "runs":
        return usual / "profiles"
    return written.parent / "profiles"
