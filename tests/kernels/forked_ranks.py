"""Ranks over Gloo on loopback, forked by a script of their own: a rank that imports torch anew takes seconds."""

import json
import os
import socket
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

LIMIT = timedelta(seconds=60)
TIMEOUT_S = 120


def printed_by(script, *arguments):
    """What a script beside this file prints as JSON; whatever it started ends with it."""
    # Not at the top: scripts load this file, and know no package around it.
    from .. import warm

    done = warm.run([Path(__file__).with_name(script), *arguments], timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    # Before it Gloo may tell that ranks are connected, as that of torch 2.11 does.
    return json.loads(done.stdout.splitlines()[-1])


def answers_of(ranks, body):
    """What `body(rank)` gives on each of so many ranks, which are a process group meanwhile; plain data, by rank."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        "127.0.0.1",
        port,
        None,
        True,
        timeout=LIMIT,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{rank}.json" for rank in range(ranks)]
        children = [_fork(rank, port, files, body) for rank in range(ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        if any(codes):
            sys.exit(f"ranks ended with {codes}")
        found = [json.loads(file.read_text()) for file in files]
    del store
    return found


def _fork(rank, port, files, body):
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        store = dist.TCPStore("127.0.0.1", port, None, False, timeout=LIMIT)
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=len(files), timeout=LIMIT
        )
        files[rank].write_text(json.dumps(body(rank)))
        dist.barrier()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        # Nothing of the parent's may be run at the end of a child.
        os._exit(code)
