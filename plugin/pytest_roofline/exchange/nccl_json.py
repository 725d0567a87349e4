"""The JSON of nccl-tests (`-J FILE.json`: `src/util.cu`, versions 1 to 3 of its own count) and that of rccl-tests."""

from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta, Struct

from ..core.errors import BadFile
from .collectives import CONVENTION, CollectiveLine, Setting, chosen, operation_of, readings_of, ways
from .records import Given, Imported, Reading, from_json, looks_like_json, pooled

Amount = Annotated[float, Meta(ge=0)]
Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
_OVER_RANKS = {"0": "rank0", "1": "", "2": "min", "3": "max"}


class _Device(Struct):
    hostname: str
    device_info: str
    group: int = 0


class _Config(Struct):
    iterations: Count
    warmup_iters: Whole
    aggregated_iterations: Count
    graph: Whole
    blocking_collectives: str
    devices: Annotated[tuple[_Device, ...], Meta(min_length=1)]


class _Half(Struct):
    time: Amount
    alg_bw: Amount
    bus_bw: Amount
    nwrong: Amount | None = None
    cpu_time: float | None = None


class _Result(Struct):
    size: Whole
    type: str
    redop: str
    root: str
    out_of_place: _Half | None = None
    in_place: _Half | None = None


class _NcclFile(Struct):
    version: Literal[1, 2, 3]
    args: tuple[str, ...]
    nccl_version: int
    config: _Config
    results: Annotated[tuple[_Result, ...], Meta(min_length=1)]
    errors: tuple[str, ...] | None = None
    start_time: str | None = None
    end_time: str | None = None


def sniff(text: str) -> bool:
    """Whether a text looks like a file of nccl-tests."""
    return looks_like_json(text) and '"nccl_version"' in text and '"results"' in text


def read(text: str, source: str, given: Given) -> tuple[Imported, ...]:
    """The one run in a file.

    Raises:
        BadFile: something that is not understood, or that no test of nccl-tests prints.
    """
    file = from_json(text, source, _NcclFile)
    products = sorted({device.device_info.strip() for device in file.config.devices})
    if len(products) > 1:
        raise BadFile(f"{source}: ranks on {' and '.join(products)}; expected one product")
    setting, rows = _setting(file, source), _rows(file, source)
    told = file.args[0] if file.args and operation_of(file.args[0]) else ""
    operation = chosen(told, given, rows, setting.ranks, source)
    readings, left_out = readings_of(rows, operation, setting, source)
    ended = next((text for text in file.errors or () if text), "")
    invalid = f"the test ended with the error {ended!r}" if ended else ""
    return (
        Imported(
            source=source,
            tool="nccl-tests",
            convention=CONVENTION,
            readings=tuple(replace(one, invalid=one.invalid or invalid) for one in readings),
            product=products[0] or None,
            host=file.config.devices[0].hostname,
            software={"NCCL": str(file.nccl_version)},
            # A local time of an unknown zone.
            started=(file.start_time or "").replace(" ", "T"),
            finished=(file.end_time or "").replace(" ", "T"),
            left_out=left_out,
        ),
    )


def _rows(file: _NcclFile, source: str) -> list[CollectiveLine]:
    rows = []
    for index, result in enumerate(file.results):
        if not result.root.strip().removeprefix("-").isdecimal():
            raise BadFile(f"{source}: results[{index}].root is {result.root!r}; expected a rank, or -1")
        for place in ("out_of_place", "in_place"):
            half: _Half | None = getattr(result, place)
            if half is None:
                continue
            if half.cpu_time is not None:
                raise BadFile(f"{source}: time of the CPU (-C 1) says nothing of the operation; run it without")
            rows.append(
                CollectiveLine(
                    f"results[{index}].{place}", result.size, result.type, result.redop, int(result.root),
                    place, half.time, half.alg_bw, half.bus_bw, half.nwrong,
                )
            )  # fmt: skip
    return rows


def _setting(file: _NcclFile, source: str) -> Setting:
    config = file.config
    groups, hosts = [device.group for device in config.devices], {device.hostname for device in config.devices}
    several, together = len(set(groups)), config.aggregated_iterations
    blocking = config.blocking_collectives == "true"
    return Setting(
        tool="nccl_tests",
        ranks=groups.count(groups[0]),
        devices=len(groups),
        iterations=config.iterations * together * max(1, config.graph),
        warmup_iterations=config.warmup_iters,
        timing="isolated" if blocking else "pipelined",
        extra=ways(
            nodes=len(hosts) if len(hosts) > 1 else 0,
            groups=several if several > 1 else 0,
            agg_iters=together if together > 1 else 0,
            graph=config.graph,
            blocking=blocking,
            over_ranks=_over_ranks(file.args, source),
        ),
    )


def _over_ranks(arguments: tuple[str, ...], source: str) -> str:
    """What `-a` made of the ranks' times; empty for their mean, the default."""
    words = [word for argument in arguments for word in argument.split("=")]
    at = next((index for index, word in enumerate(words) if word in ("-a", "--average")), None)
    value = "1" if at is None else "".join(words[at + 1 : at + 2])
    if value not in _OVER_RANKS:
        raise BadFile(f"{source}: args have -a {value!r}; expected one of {', '.join(_OVER_RANKS)}")
    return _OVER_RANKS[value]


class _Record(Struct, rename="camel"):
    """One half of a row of rccl-tests."""

    name: str
    nodes: Count
    ranks: Count
    ranks_per_node: Count
    gpus_per_rank: Literal[1]
    size: Whole
    type: str
    redop: str
    in_place: Literal[0, 1]
    time: Amount
    alg_bw: Amount
    bus_bw: Amount
    wrong: str


class _Records(Struct):
    records: Annotated[tuple[_Record, ...], Meta(min_length=1)]


def sniff_rccl(text: str) -> bool:
    """Whether a text looks like a file of rccl-tests."""
    return looks_like_json(text) and '"numCycle"' in text and '"ranksPerNode"' in text


def read_rccl(text: str, source: str, given: Given) -> tuple[Imported, ...]:
    """The records of a file, a list or one a line, which names neither product nor versions, nor the calls of a time.

    Raises:
        BadFile: something that is not understood, or that no test of rccl-tests prints.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    listed = text if text.lstrip().startswith("[") else f"[{','.join(lines)}]"
    records = from_json(f'{{"records": {listed}}}', source, _Records).records
    readings: list[Reading] = []
    left_out: list[str] = []
    for index, record in enumerate(records):
        if record.nodes * record.ranks_per_node != record.ranks:
            raise BadFile(f"{source}, records[{index}]: {record.ranks} ranks; expected nodes times ranksPerNode")
        setting = Setting("rccl_tests", record.ranks, record.ranks, extra=ways(nodes=record.nodes * (record.nodes > 1)))
        rows = [_row(record, f"records[{index}]", source)]
        found = readings_of(rows, chosen(record.name, Given(), rows, record.ranks, source), setting, source)
        readings += found[0]
        left_out += found[1]
    if given.devices not in (None, records[0].ranks):
        raise BadFile(f"{source}: {records[0].ranks} ranks, but --devices={given.devices}; expected the same")
    convention = f"{CONVENTION}; how many calls stand behind a time is not told"
    return (Imported(source, "rccl-tests", convention, pooled(readings), left_out=tuple(left_out)),)


def _row(record: _Record, where: str, source: str) -> CollectiveLine:
    if record.wrong != "N/A" and not record.wrong.isdecimal():
        raise BadFile(f"{source}, {where}: wrong is {record.wrong!r}; expected a count, or N/A")
    return CollectiveLine(
        where, record.size, record.type, record.redop, None, ("out_of_place", "in_place")[record.in_place],
        record.time, record.alg_bw, record.bus_bw, None if record.wrong == "N/A" else int(record.wrong),
    )  # fmt: skip
