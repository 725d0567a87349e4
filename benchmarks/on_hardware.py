"""Does a real card do what the fakes assume and the documentation claims? Every question, in stages, on one command.

    python benchmarks/on_hardware.py --out facts                  # all stages, each of at most eight minutes
    python benchmarks/on_hardware.py --out facts --stages probe,trust
    python benchmarks/on_hardware.py --out facts --minutes 15     # the most telling questions, in two calls of this
    python benchmarks/on_hardware.py --from facts                 # the page of facts that were brought back
    python benchmarks/on_hardware.py --table                      # what ran on which hardware, into docs/index.md

Without a network, and without changing anything of the card. What is found is written down line by line, so a stage
that is cut at its deadline, or a process that dies, loses nothing: the same command goes on where it was, and skips the
stages that are finished. Without a card (or with --device fake) it runs on a fake that behaves as an H100 should.

Exit status: 0 it ran and nothing is disproved, 1 something is disproved, 2 the input cannot be used, 3 a stage was cut:
call it again.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hardware import attention, probe, processes, stages, two_calls
from hardware.facts import Facts, begin, read
from hardware.faithful import faithful, lab_facts, planted
from hardware.labs import FakeLab, Lab, TorchLab
from hardware.running import run
from hardware.stages import Machine

from pytest_roofline.core.errors import BadInput, DeviceError, RooflineError

ROOT = Path(__file__).resolve().parent.parent
ALL = (probe.STAGE, *stages.STAGES)
STAGE_S = 480.0
# To open a device and ask it what it is.
DESCRIBE_S = 120.0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", help="cuda, cuda:N, cpu, or fake (default: the GPU there is, else fake)")
    add(
        "--out",
        type=Path,
        default=ROOT / ".roofline/hardware",
        help="folder of what is found (default: %(default)s)",
    )
    add(
        "--from",
        type=Path,
        dest="source",
        metavar="DIR",
        help="ask nothing; make the page of the facts in DIR",
    )
    add("--stages", type=_stages, default=ALL, help=f"some of {','.join(ALL)} (default: all)")
    add(
        "--again",
        type=_stages,
        default=(),
        metavar="STAGES",
        help="ask these anew, though they are finished",
    )
    add(
        "--seconds-per-stage",
        type=float,
        default=STAGE_S,
        help="deadline of a stage (default: %(default)g)",
    )
    add(
        "--minutes",
        type=float,
        help="how long the card is there, in place of --stages: a plan of two calls of this command, "
        "of 400 and 290 s where it is 15",
    )
    add(
        "--quick",
        action="store_true",
        help="little time for every measurement: tries the program, proves nothing",
    )
    add(
        "--plant",
        type=json.loads,
        default={},
        metavar="JSON",
        help='what deviates in the fake: {"tick_s": 1e-6}',
    )
    add(
        "-o",
        "--output",
        type=Path,
        help="the page (default: docs/results/hardware/PRODUCT.md; of a fake DIR/page.md)",
    )
    add("--table", action="store_true", help="write the table of devices into docs/index.md")
    # For the processes of its own.
    add("--describe", action="store_true", help=argparse.SUPPRESS)
    add("--ask", nargs="+", default=None, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _stages(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no stage {', '.join(unknown)}; expected some of {','.join(ALL)}"
        )
    return names


def lab_of(device: str) -> Lab:
    """What the probe asks: a real device, or the faithful fake with what is planted in it."""
    if device == "fake":
        changes = planted()
        return FakeLab(faithful(**changes), lab_facts(**changes))
    from pytest_roofline.engine.devices import open_device

    return TorchLab(open_device(device, "--device"))


def chosen(device: str | None) -> str:
    """The device that is asked for, or the GPU there is, or the fake."""
    if device is not None:
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "fake"


def describe(device: str) -> dict[str, Any]:
    """What facts say of the device that they were found on, and of the software; nothing that names a machine."""
    from pytest_roofline.core.storage import to_plain
    from pytest_roofline.engine.host import gather

    found = to_plain(gather(lab_of(device).device))
    named = ("type", "product", "architecture", "memory_bytes", "last_level_cache_bytes", "driver")
    own = {name: found["device"][name] for name in named if name in found["device"]}
    return {
        "product": own["product"],
        "environment": {"device": own, "software": found["software"]},
    }


def header(machine: Machine) -> dict[str, Any]:
    """On what facts are found. A process of its own asks: a context of this one would be a neighbour of the probe's.

    Raises:
        DeviceError: the device is not there.
    """
    if machine.fake:
        told = describe(machine.device)
    else:
        said = machine.out / "said" / "device.txt"
        ended = run(
            processes.command(machine, "--describe"), said, DESCRIBE_S, machine.environment, ROOT
        )
        if ended.status != 0:
            raise DeviceError(
                f"--device {machine.device} cannot be described; {stages.last_words(said)}"
            )
        told = json.loads(said.read_text(encoding="utf-8").splitlines()[-1])
    started = time.strftime("%Y-%m-%d", time.gmtime())
    own = {
        "device": machine.device,
        "planted": machine.planted,
        "quick": machine.quick,
        "started": started,
    }
    return own | told


def ask(options: argparse.Namespace) -> Facts:
    """Every stage that was asked for and is not finished, or what fits into a call of a plan of minutes."""
    began_s = time.monotonic()
    if options.minutes is not None and (options.stages, tuple(options.again)) != (ALL, ()):
        raise BadInput("--minutes has a plan of its own; expected neither --stages nor --again")
    machine = Machine(chosen(options.device), options.out.resolve(), options.plant, options.quick)
    if options.plant and not machine.fake:
        raise BadInput(f"--plant is for --device fake; this is {machine.device}")
    facts = begin(machine.out, header(machine) | {"minutes": options.minutes})
    if options.minutes is not None:
        two_calls.call(machine, facts, options.minutes, began_s)
        return facts
    for stage in options.again:
        facts.forget(stage)
    for stage in options.stages:
        if facts.outcome(stage) == "finished":
            print(f"{stage}: finished before", flush=True)
            continue
        print(f"{stage}: at most {options.seconds_per_stage:g} s", flush=True)
        if stage == probe.STAGE:
            stage_began_s = time.monotonic()
            finished = processes.ask_probes(
                machine, facts, list(probe.PROBES), options.seconds_per_stage
            )
            facts.end(stage, "finished" if finished else "cut", time.monotonic() - stage_began_s)
        else:
            stages.call(machine, facts, stage, options.seconds_per_stage)
        print(f"{stage}: {facts.outcome(stage)}", flush=True)
    return facts


def written_to(options: argparse.Namespace, facts: Facts) -> Path:
    """Where the page goes. That of a fake never stands among the results of hardware unless asked to."""
    from hardware import devices_table, page

    if options.output:
        return options.output
    folder = options.source or options.out
    if devices_table.of_hardware(facts):
        return devices_table.RESULTS / f"{page.slug_of(facts)}.md"
    return folder / "page.md"


def publish(where: Path, facts: Facts) -> None:
    """The page, and where it stands among the results the facts behind it."""
    from hardware import devices_table, page

    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(page.page(facts), encoding="utf-8")
    if where.parent == devices_table.RESULTS:
        shutil.copyfile(facts.path, where.with_suffix(".jsonl"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: see above."""
    options = parse(arguments)
    try:
        if options.describe:
            print(json.dumps(describe(options.device)))
            return 0
        if options.ask is not None:
            stage, *names = options.ask
            ask_here = {probe.STAGE: probe.ask, attention.STAGE: attention.ask}[stage]
            ask_here(lab_of(options.device), read(options.out), names)
            return 0
        # Torch takes seconds to import, and a process of the probe on the fake needs none.
        from hardware import devices_table, page

        if options.table:
            devices_table.write()
            return 0
        facts = read(options.source) if options.source else ask(options)
        where = written_to(options, facts)
        publish(where, facts)
    except RooflineError as error:
        print(f"on_hardware: {error}", file=sys.stderr)
        return 2
    rows = page.rows(facts)
    print(f"{page.lists(rows)}\n\nwritten to {where}")
    if any(facts.outcome(stage) == "cut" for stage in ALL):
        return 3
    return 1 if any(row.verdict == page.DISPROVED for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
