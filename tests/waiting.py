"""Waiting for what another process does."""

import time

POLL_S = 0.1


def until(come, seconds: float) -> bool:
    """Wait for something to come; whether it did in this time."""
    until_s = time.monotonic() + seconds
    while not (arrived := come()) and time.monotonic() < until_s:
        time.sleep(POLL_S)
    return arrived
