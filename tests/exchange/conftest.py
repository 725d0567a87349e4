"""Real output of other tools and readers of it; runs to export, and the schemas of what comes of them."""

import json
from pathlib import Path

import jsonschema
import pytest

from pytest_roofline.core.judgements import Judgement
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Samples
from pytest_roofline.exchange import export, read
from pytest_roofline.exchange.records import Given

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def text():
    """The text of a file of `data/`."""
    return lambda name: (DATA / name).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def take():
    """Read a text as the command would: what it holds, one entry a process of the tool."""

    def take(content, name=None, **given):
        data = content if isinstance(content, bytes) else content.encode()
        return read(data, "file", Given(**given), name)

    return take


@pytest.fixture(scope="session")
def one(take):
    """The readings of a text with one run of a tool, by label."""

    def one(content, name=None, **given):
        (imported,) = take(content, name, **given)
        return {reading.label: reading for reading in imported.readings}

    return one


@pytest.fixture(scope="session")
def nccl_json():
    """A file of nccl-tests' -J, by what `src/util.cu` writes.

    `rows` are size, count, and of each half microseconds and wrong elements; `changes` replace top-level values.
    """

    def body(size, time_us, wrong, ranks):
        algbw = size / time_us / 1e3
        figures = {"time": time_us, "alg_bw": algbw, "bus_bw": algbw * 2 * (ranks - 1) / ranks}
        return {name: round(value, 6) for name, value in figures.items()} | {"nwrong": wrong}

    def write(rows=((8589934592, 2147483648, 63896.0, 63959.0),), ranks=8, wrong=0.0, **changes):
        devices = [
            {"rank": rank, "group": 0, "pid": 1, "hostname": "dgx", "device": rank, "device_hex": "0000:0f:00"}
            | {"device_info": "NVIDIA A100-SXM4-80GB"}
            for rank in range(ranks)
        ]
        config = {"nthreads": 1, "ngpus": ranks, "minimum_bytes": 8, "maximum_bytes": 2**33, "step_factor": 2}
        config |= {"warmup_iters": 1, "iterations": 20, "aggregated_iterations": 1, "validation": 1, "graph": 0}
        config |= {"blocking_collectives": "false", "parallel_init": "false", "devices": devices}
        results = []
        for size, count, out_us, in_us in rows:
            shared = {"size": size, "count": count, "type": "float", "redop": "sum", "root": "    -1"}
            halves = {
                "out_of_place": body(size, out_us, wrong, ranks),
                "in_place": body(size, in_us, wrong, ranks),
            }
            results.append(shared | halves | {"actual_iterations": 20, "experiment_name": ""})
        rates = [half["bus_bw"] for row in results for half in (row["out_of_place"], row["in_place"])]
        top = {"version": 1, "start_time": "2026-01-02 10:11:12", "args": ["./build/all_reduce_perf", "-g", "8"]}
        top |= {"env": ["HOME=/root"], "nccl_version": 22809, "config": config, "results": results}
        top |= {"out_of_bounds": {"count": 0, "okay": "true"}}
        top |= {"average_bus_bandwidth": {"bandwidth": round(sum(rates) / len(rates), 6), "okay": "unchecked"}}
        top |= {"errors": [""], "end_time": "2026-01-02 10:12:00"}
        return json.dumps(top | changes, indent=1)

    return write


@pytest.fixture(scope="session")
def rccl_json():
    """A file of rccl-tests' JSON: one record for each half of a row."""

    def write(size=134217728, times_us=(801.4, 811.1), ranks=8, wrong="0", **changes):
        records = []
        for place, time_us in enumerate(times_us):
            algbw = size / time_us / 1e3
            record = {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": ranks, "ranksPerNode": ranks}
            record |= {"gpusPerRank": 1, "size": size, "type": "float", "redop": "sum", "inPlace": place}
            record |= {"time": time_us, "algBw": round(algbw, 6)}
            record |= {"busBw": round(algbw * 2 * (ranks - 1) / ranks, 6), "wrong": wrong}
            records.append(json.dumps(record | changes))
        return records

    return write


@pytest.fixture
def exported(make, tmp_path):
    """Export records as a format would: what comes of one run that holds them."""

    def exported(name, *records, **changes):
        return export([make.run(tmp_path / "run.jsonl", *records, **changes)], name)

    return exported


@pytest.fixture(scope="session")
def judged():
    """A judgement of a measurement."""

    def judged(measurement, verdict="PASSED", **changes):
        facts = {
            "test_id": measurement.test_id,
            "label": measurement.label,
            "verdict": verdict,
            "tolerance": 0.05,
            "name": measurement.key.name,
        }
        return Judgement(**(facts | changes))

    return judged


@pytest.fixture(scope="session")
def processes(make):
    """The measurements of several processes of one test, each of some samples, with a roofline of 1 TB/s."""

    def processes(*samples, **changes):
        ceiling = Ceiling("traffic_GBps", 1e12, "datasheet", "the vendor's guide")
        return [
            make.measurement(
                process=f"process-{number}",
                samples=Samples(tuple(seconds), iterations=10, tick_s=1e-9),
                ceiling=ceiling,
                **changes,
            )
            for number, seconds in enumerate(samples, 1)
        ]

    return processes


@pytest.fixture(scope="session")
def validate():
    """Holds a document against a schema of `data/`, as it reads once it went through JSON."""

    def validate(name, document):
        schema = json.loads((DATA / f"{name}.schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft7Validator.check_schema(schema)
        jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), schema)

    return validate
