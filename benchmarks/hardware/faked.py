"""`roofline doctor --measure` on the faithful fake: the command's own code, with the fake in place of a device."""

import sys

import pytest_roofline.cli.main
from pytest_roofline.engine import ceiling, devices

from .faithful import faithful, lab_facts, planted
from .labs import FakeLab


def main() -> None:
    """The command line as it was given, on the fake."""
    changes = planted()
    device = faithful(**changes)
    devices.open_device = lambda *_: device
    ceiling.TorchWorkloads = lambda _: FakeLab(device, lab_facts(**changes))
    pytest_roofline.cli.main.main(sys.argv[1:])


if __name__ == "__main__":
    main()
