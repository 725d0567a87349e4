"""A machine, its findings and the proven properties as lines that a person reads."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from pytest_roofline.core.facts import Finding, Gpu, HostFacts, Machine, Property, Unexpected
from pytest_roofline.core.units import printable
from pytest_roofline.report.machine import (
    difference_lines,
    finding_lines,
    machine_lines,
    property_line,
)

GB = 10**9
HOST = HostFacts("node", "AMD EPYC", 64, 32, 512 * GB, 512 * GB, kernel="6.8")
GPU = Gpu(
    0, "NVIDIA H100", memory_bytes=80 * GB, driver="570.86", power_limit_w=700.0, pcie_generation=5, pcie_width=16,
    links=18, ecc=True,
)  # fmt: skip
FINDING = Finding(
    "limit", "memlock", "8.39 MB may be locked", "RDMA is refused", "ulimit -l unlimited"
)
HELD = Property("a flush evicts the cache", "holds", "cold at 3000 GB/s", "at most 3450 GB/s")


def test_the_host_and_every_gpu_have_a_line():
    lines = machine_lines(
        Machine(HOST, gpus=(GPU, replace(GPU, index=1, ecc=False)), torch_devices=2)
    )
    assert lines == [
        "host node: AMD EPYC, 32 of 64 cores, 512 GB memory, kernel 6.8",
        "GPU 0 (NVIDIA H100): 80.0 GB, driver 570.86, 700 W, PCIe 5 × 16, 18 links up, ECC on",
        "GPU 1 (NVIDIA H100): 80.0 GB, driver 570.86, 700 W, PCIe 5 × 16, 18 links up, ECC off",
        "2 GPUs seen; torch uses 2",
    ]


def test_what_is_unknown_is_left_out_and_what_is_seen_is_told():
    for machine, told in (
        (Machine(HOST), "no GPUs seen"),
        (Machine(HOST, torch_devices=0), "no GPUs seen; torch uses 0"),
        (Machine(HOST, gpus=(GPU,), torch_devices=0), "1 GPU seen; torch uses 0"),
    ):
        assert machine_lines(machine)[-1] == told
    (host, _) = machine_lines(Machine(replace(HOST, usable_memory_bytes=16 * GB)))
    assert "512 GB memory, of which 16.0 GB usable" in host

    def line(**facts):
        return machine_lines(Machine(HOST, gpus=(replace(GPU, **facts),)))[1]

    for facts, told in (
        ({"memory_bytes": None}, "80.0 GB"),
        ({"driver": None}, "driver"),
        ({"power_limit_w": None}, " W"),
        ({"pcie_generation": None, "pcie_width": None}, "PCIe"),
        ({"links": None}, "links"),
        ({"ecc": None}, "ECC"),
    ):
        assert [True, False] == [told in line(), told in line(**facts)]
    # Half of a link, no links up and a partition are not unknown.
    for facts, told in (
        ({"pcie_width": None}, "PCIe 5 × ?"),
        ({"pcie_generation": None}, "PCIe ? × 16"),
        ({"links": 0}, "0 links up"),
        ({"partition": "mig"}, "mig"),
    ):
        assert told in line(**facts)


def test_a_finding_says_kind_subject_what_was_seen_its_effect_and_its_remedy():
    assert finding_lines([FINDING], 200) == [
        "LIMIT   memlock: 8.39 MB may be locked: RDMA is refused. Remedy: ulimit -l unlimited."
    ]
    other = replace(FINDING, kind="unknown", subject="governor")
    assert ["LIMIT", "UNKNOWN"] == [
        line.split()[0] for line in finding_lines([FINDING, other], 200)
    ]
    assert finding_lines([], 80) == ["no fault was found that makes numbers unreliable"]


@given(st.text(max_size=300), st.integers(20, 120))
def test_no_line_of_a_finding_is_wider_than_the_terminal(text, width):
    lines = finding_lines([replace(FINDING, observed=text)], width)
    assert max(len(line) for line in lines) <= width


def test_a_finding_that_goes_on_is_indented_and_loses_no_word():
    for width in (40, 80):
        first, *others = finding_lines([replace(FINDING, effect="slow " * 40)], width)
        assert first.startswith("LIMIT   memlock")
        assert others
        assert all(line.startswith(" " * 8) and line[8] != " " for line in others)
    finding = replace(
        FINDING, remedy="start the container with docker run --shm-size=16g (or --ipc=host) " * 5
    )
    assert (
        " ".join(finding_lines([finding], 400)).split()
        == " ".join(finding_lines([finding], 40)).split()
    )


def test_every_difference_has_a_line_with_its_remedy_and_they_are_counted():
    narrow, driver = (
        Unexpected("GPU 3 (H100)", "pcie_width", "16", "8"),
        Unexpected("driver", "version", "570", "?"),
    )
    assert difference_lines([], "node.json") == ["no difference from node.json"]
    assert difference_lines([narrow], "node.json")[-1] == "1 difference from node.json"
    assert difference_lines([narrow, driver], "node.json") == [
        f"GPU 3 (H100): pcie_width is 8, expected 16; remedy: {narrow.remedy}",
        f"driver: version is ?, expected 570; remedy: {driver.remedy}",
        "2 differences from node.json",
    ]
    assert narrow.remedy != driver.remedy


def test_what_must_be_is_told_where_a_property_fails():
    for outcome, end in (
        ("holds", ""),
        ("FAILS", "; expected at most 3450 GB/s"),
        ("does not apply", ""),
    ):
        line = f"{outcome:15}a flush evicts the cache: cold at 3000 GB/s{end}"
        assert line == property_line(replace(HELD, outcome=outcome), 200)


@given(st.text(max_size=300), st.integers(30, 120))
def test_no_line_of_a_property_is_wider_than_the_terminal(text, width):
    lines = property_line(replace(HELD, outcome="FAILS", observed=text), width).split("\n")
    assert max(len(line) for line in lines) <= width


def hostile_lines(text):
    """Lines of everything that a driver, a file or a path may name, named like this."""
    gpu = Gpu(0, text, driver=text, partition=text)
    machine = Machine(replace(HOST, name=text, cpu_model=text, kernel=text), gpus=(gpu,))
    finding = Finding("limit", gpu.label, text, text, text)
    return [
        *machine_lines(machine),
        *finding_lines([finding], 100),
        *difference_lines([Unexpected(gpu.label, text, text, text)], text),
        *difference_lines([], text),
        *property_line(replace(HELD, outcome="FAILS", observed=text, expected=text), 100).split(
            "\n"
        ),
    ]


@given(st.text(max_size=40))
@example("evil\nLIMIT \x1b[31m\r\x85\u2028\x00\u202e")
def test_no_name_whatever_breaks_a_line(text):
    lines = hostile_lines(text)
    assert [printable(line) for line in lines] == lines
