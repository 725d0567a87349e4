"""What pytest does under a launcher, without pytest: `attach_run.py FOLDER [lose]`; rank 0 writes what came of it."""

import os
import sys
from pathlib import Path

import attach_functions

from pytest_roofline.core.errors import RanksFailed
from pytest_roofline.ranks.attach import BYE, JOIN, follow, gather, supervise
from pytest_roofline.ranks.identity import identify
from pytest_roofline.ranks.pool import Pool
from pytest_roofline.ranks.rendezvous import rendezvous_of
from pytest_roofline.ranks.tasks import reference


def main(folder, *names):
    """Follow rank 0, or have the ranks add up before and after each of the named functions."""
    identity = identify(os.environ)
    rendezvous = rendezvous_of(identity, os.environ, folder)
    if identity.rank:
        return supervise(follow(identity, rendezvous, 60.0))
    attached = gather(identity, rendezvous)
    attached.tell(JOIN)
    pool = Pool(attached.placement(), attached.size, "cpu")
    said = []
    for name in ("total", *(each for asked in names for each in (asked, "total"))):
        try:
            results = pool.run(reference(getattr(attach_functions, name)), (), attached.size, timeout_s=60)
            said.append(f"{identity.launcher} {results}")
        except RanksFailed as error:
            said.append(str(error).partition("\n")[0])
    pool.stop()
    (folder / "said").write_text("\n".join(said))
    attached.tell(BYE)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
