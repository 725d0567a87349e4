"""A bundle never merges two tests, never keeps a name for a product's sake, and can be unpacked everywhere."""

import json

import pytest

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.bundle.making import machine_text, make_bundle
from pytest_roofline.bundle.redacting import Redactor
from pytest_roofline.core.errors import BadInput


def saved(make, folder, *names, host="node1", file="test_h.py"):
    """A run of host `host` with one test for each name."""
    lines = [make.measurement(1e-3, test_id=f"{file}::test_h[{name}]", label=f"h[{name}]") for name in names]
    path = make.save(folder / "r.jsonl", *lines)
    path.write_text(path.read_text().replace('"name": "node"', f'"name": "{host}"'), encoding="utf-8")
    return path


def made(path, redactor=None):
    return make_bundle(read_run(path), ["test_h"], redactor or Redactor(), path.parent)


@pytest.mark.parametrize("names", [("node1", "node1.corp.internal"), ("node1", "NODE1", "Node1.x")])
def test_tests_that_differ_in_how_a_name_is_spelt_stay_two(make, tmp_path, names):
    bundle = made(saved(make, tmp_path, *names))
    ids = {row.test for row in bundle.rows}
    assert len(names) == len(ids)
    assert not any("node1" in one.lower() for one in ids)


def test_tests_that_a_placeholder_makes_one_are_refused(make, tmp_path):
    path = saved(make, tmp_path, "node1", "host-1")
    with pytest.raises(BadInput, match="has 2 tests, and 1 without names"):
        made(path)
    assert 2 == len(made(path, Redactor(["hosts"])).rows)


def test_a_name_within_the_name_of_a_product_does_not_stay(make, tmp_path):
    path = saved(make, tmp_path, "x", host="gpubox77")
    header, *others = path.read_text(encoding="utf-8").splitlines()
    plain = json.loads(header)
    plain["environment"]["device"]["product"] = "NVIDIA H200 rented by carolsmith on gpubox77.acmecorp"
    plain["environment"]["host"]["cpu_model"] = "Intel Xeon vcpu carolsmith"
    plain["command"] = ["pytest", "--rootdir=/home/carolsmith/x"]
    path.write_text("\n".join([json.dumps(plain), *others]) + "\n", encoding="utf-8")
    files = made(path).files
    assert [name for name, data in files.items() if b"carolsmith" in data or b"gpubox77" in data] == []
    found = json.loads(files["run.jsonl"].splitlines()[0])["environment"]
    assert ("NVIDIA H200 rented by user-1 on host-1", "Intel Xeon vcpu user-1") == (
        found["device"]["product"],
        found["host"]["cpu_model"],
    )


def test_what_is_counted_is_what_stands_in_the_archive(make, tmp_path):
    (tmp_path / "test_h.py").write_text("# by alice\ndef test_h():\n    pass  # alice\n", encoding="utf-8")
    redactor = Redactor()
    redactor.learn("users", "alice")
    bundle = made(saved(make, tmp_path, "x"), redactor)
    assert (1, 2) == bundle.summary["users"]
    assert len(bundle.again.notes) == len(set(bundle.again.notes))


def test_a_file_that_some_system_cannot_unpack_is_left_out(make, tmp_path):
    (tmp_path / "aux.py").write_text("def test_h():\n    pass\n", encoding="utf-8")
    bundle = made(saved(make, tmp_path, "x", file="aux.py"))
    assert (["a file called 'tests/aux.py' cannot be unpacked on every system"], []) == (
        bundle.again.left_out,
        bundle.again.tests,
    )


def test_a_machine_is_told_without_its_name(make):
    assert "NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0" == machine_text(make.environment())
    assert "AMD EPYC, kernel 6.8, torch 2.13.0" == machine_text(make.environment("AMD EPYC", driver=None))
