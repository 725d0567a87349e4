"""What limits the trust in a machine's numbers: a finding exactly where its fact is there."""

from dataclasses import fields, replace

from pytest_roofline.core.facts import Gpu, HostFacts, Machine
from pytest_roofline.machine.diagnosis import diagnose

MIB, GIB = 2**20, 2**30
HOST = HostFacts(
    "node", "AMD EPYC", 64, 64, 512 * GIB, 512 * GIB, kernel="6.8", governor="performance"
)
GPU = Gpu(
    0, "NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_bytes=80 * GIB, driver="570.86", power_limit_w=700.0,
    power_default_w=700.0, pcie_generation=5, pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16, links=18,
    ecc=True, persistence=True, compute_mode="default", others_bytes=0, throttle_known=True, ecc_errors=0,
)  # fmt: skip
CPU_NODE = Machine(HOST, torch_devices=0, shm_bytes=64 * GIB, memlock_known=True)
GPU_NODE = replace(
    CPU_NODE, gpus=(GPU,), torch_devices=1, accelerator_nodes=("/dev/nvidiactl",), libraries=("NVML",), no_peers=(),
    mps=False,
)  # fmt: skip


def changed(**facts):
    """A good GPU node with other facts, each of its GPU, its host or the machine."""
    of_gpu, of_host = ({f.name for f in fields(kind)} & facts.keys() for kind in (Gpu, HostFacts))
    return replace(
        GPU_NODE,
        gpus=(replace(GPU, **{name: facts[name] for name in of_gpu}),),
        host=replace(HOST, **{name: facts[name] for name in of_host}),
        **{name: value for name, value in facts.items() if name not in of_gpu | of_host},
    )


def added(machine):
    """What is found beyond what is found on a good node."""
    usual = diagnose(GPU_NODE)
    return [finding for finding in diagnose(machine) if finding not in usual]


FOUND = {
    "no torch": ({"torch_devices": None}, "limit", "torch", "torch is not installed"),
    "torch for the CPU": ({"torch_devices": 0}, "limit", "torch", "/dev/nvidiactl"),
    "no management library": ({"libraries": ()}, "unknown", "management library", "NVML"),
    "a management library that says why": (
        {"libraries": (), "silent": ("nvidia-ml-py is not installed (pip install nvidia-ml-py)",)},
        "unknown",
        "management library",
        "nvidia-ml-py is not installed",
    ),
    "neighbours at work": (
        {"cores_taken": 3.3, "taken_by": ("cc1 (7) 2.0",)},
        "limit",
        "busy machine",
        "3.3 of 64 cores busy (cc1 (7) 2.0)",
    ),
    "profiler": (
        {"profiler": "CUDA_INJECTION64_PATH"},
        "limit",
        "profiler",
        "CUDA_INJECTION64_PATH is set",
    ),
    "a power limit that is not told": (
        {"power_limit_w": None},
        "unknown",
        GPU.label,
        "power limit withheld",
    ),
    "a link that is not told": ({"pcie_width": None}, "unknown", GPU.label, "PCIe width withheld"),
    "memory errors that are not told": (
        {"ecc_errors": None},
        "unknown",
        GPU.label,
        "ECC errors withheld",
    ),
    "memory errors": ({"ecc_errors": 1}, "limit", GPU.label, "1 uncorrected ECC error since"),
    "no permission for counters": (
        {"throttle_known": False},
        "unknown",
        GPU.label,
        "throttle counters",
    ),
    "memory in use withheld": ({"others_bytes": None}, "unknown", GPU.label, "memory in use"),
    "shared GPU": ({"others_bytes": 4 * 10**9}, "limit", GPU.label, "4.00 GB"),
    "a little more than an idle context": (
        {"others_bytes": 256 * MIB + 1},
        "limit",
        GPU.label,
        "268 MB",
    ),
    "exclusive": ({"compute_mode": "exclusive process"}, "limit", GPU.label, "exclusive process"),
    "prohibited": ({"compute_mode": "prohibited"}, "limit", GPU.label, "prohibited"),
    "partition": ({"partition": "mig"}, "limit", GPU.label, "mig"),
    "persistence": ({"persistence": False}, "limit", GPU.label, "persistence"),
    "no peer access": ({"no_peers": ((0, 1), (2, 3))}, "limit", "peer access", "0–1, 2–3"),
    "MPS": ({"mps": True}, "limit", "CUDA MPS", "shares the GPUs"),
    "governor": ({"governor": "powersave"}, "limit", "frequency governor", "powersave"),
    "governor not readable": ({"governor": None}, "unknown", "frequency governor", "not readable"),
    "bound to one core": ({"usable_cores": 1}, "limit", "affinity", "1 of 64 cores"),
    "CPU quota": ({"cgroup_cpus": 2.5}, "limit", "cgroup", "2.5 cores"),
    "cgroup memory": ({"cgroup_memory_bytes": 16 * 10**9}, "limit", "cgroup", "16.0 GB"),
    "/dev/shm of a container": ({"shm_bytes": 64 * MIB}, "limit", "/dev/shm", "67.1 MB"),
    "/dev/shm just too small": ({"shm_bytes": GIB - 1}, "limit", "/dev/shm", "1.07 GB"),
    "memlock of a shell": ({"memlock_bytes": 8 * MIB}, "limit", "memlock", "8.39 MB"),
    "memlock nothing": ({"memlock_bytes": 0}, "limit", "memlock", "0 B"),
    "memlock just too small": ({"memlock_bytes": 64 * MIB - 1}, "limit", "memlock", "67.1 MB"),
}

FINE = {
    "whole idle contexts": {"others_bytes": 256 * MIB},
    "a power limit without a default": {"power_limit_w": 500.0, "power_default_w": None},
    "a link without its rating": {"pcie_generation": 3, "pcie_generation_rated": None},
    "ECC switched off": {"ecc": False, "ecc_errors": None},
    "persistence not told": {"persistence": None},
    "compute mode not told": {"compute_mode": None},
    "peers not asked": {"no_peers": None},
    "MPS not asked": {"mps": None},
    "a machine of one core": {"cores": 1, "usable_cores": 1},
    "bound to several cores": {"usable_cores": 2},
    "a quota of every core": {"cgroup_cpus": 64.0},
    "/dev/shm just large enough": {"shm_bytes": GIB},
    "no /dev/shm": {"shm_bytes": None},
    "memlock just large enough": {"memlock_bytes": 64 * MIB},
    "memlock without limit": {"memlock_bytes": None, "memlock_known": True},
    "several accelerators": {"torch_devices": 8},
}


def test_a_fact_that_limits_trust_is_found_once_with_what_it_does_and_what_would_mend_it():
    for fact, (facts, kind, subject, observed) in FOUND.items():
        (finding,) = added(changed(**facts))
        assert (kind, subject) == (finding.kind, finding.subject), fact
        assert observed in finding.observed, fact
        assert all((finding.effect.strip(), finding.remedy.strip())), fact
    for fact, facts in FINE.items():
        assert added(changed(**facts)) == [], fact


def test_a_good_node_has_no_findings_and_what_no_accelerator_needs_limits_nothing():
    for facts in (
        {},
        {"memlock_bytes": 0},
        {"memlock_known": False},
        {"libraries": ()},
    ):
        assert diagnose(replace(CPU_NODE, **facts)) == [], facts
    assert [("unknown", "time slicing")] == [
        (finding.kind, finding.subject) for finding in diagnose(GPU_NODE)
    ]


def test_limits_stand_before_what_is_unknown_and_gpus_keep_their_order_and_their_names():
    worst = changed(
        **{name: value for facts, *_ in FOUND.values() for name, value in facts.items()}
    )
    kinds = [finding.kind for finding in diagnose(worst)]
    assert ({"limit", "unknown"}, sorted(kinds)) == (set(kinds), kinds)
    gpus = tuple(
        replace(GPU, index=index, persistence=False, throttle_known=False) for index in range(8)
    )
    found = diagnose(replace(GPU_NODE, gpus=gpus))
    labels = [gpu.label for gpu in gpus]
    for kind in ("limit", "unknown"):
        assert labels == [f.subject for f in found if f.kind == kind and f.subject in labels]
    gpus = tuple(
        replace(GPU, index=index, power_limit_w=450.5 if index == 5 else 700.0)
        for index in range(8)
    )
    (finding,) = added(replace(GPU_NODE, gpus=gpus))
    assert finding.subject == "GPU 5 (NVIDIA H100 80GB HBM3)"
    assert "nvidia-smi -i 5 -pl 700" in finding.remedy
    for pairs, told in [(6, "0–6 cannot"), (7, "0–6 and 1 more")]:
        (finding,) = added(changed(no_peers=tuple((0, other) for other in range(1, pairs + 1))))
        assert told in finding.observed, (pairs, told)
