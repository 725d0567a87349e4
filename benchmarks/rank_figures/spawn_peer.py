"""The peer of `blame`: a fault in processes of `torch.multiprocessing.spawn`; its own words go to standard output."""

import json
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing

ROOT = Path(__file__).resolve().parents[2]


class PeerRank(int):
    """As much of a rank as the functions use."""

    size = 0


def main(number, asked, store):
    """What one process does."""
    sys.path.insert(0, str(ROOT))
    from tests.ranks import rank_functions

    group_time = timedelta(seconds=asked["group_s"])
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=number,
        world_size=asked["size"],
        timeout=group_time,
    )
    rank = PeerRank(number)
    rank.size = asked["size"]
    getattr(rank_functions, asked["function"])(rank, asked["guilty"], *asked["arguments"])
    dist.destroy_process_group()


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            torch.multiprocessing.spawn(
                main, (wanted, Path(folder) / "store"), nprocs=wanted["size"]
            )
        except Exception as error:
            print(str(error).strip())
