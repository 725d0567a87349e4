"""`roofline.measure(devices=…)`: several devices of one process, timed together and written down as such."""

import pytest

# Two GPUs of one host, of which the second is slower; any other name is not there.
TWO = """
from pytest_roofline.core.errors import DeviceError

class Host:
    now_s = 0.0

class Peer(FakeDevice):
    host = Host

    @property
    def _host_s(self):
        return Host.now_s

    @_host_s.setter
    def _host_s(self, now_s):
        Host.now_s = max(Host.now_s, now_s)

    def wait_for(self, stamp):
        self.clock_s = max(self.clock_s, stamp)

OPENED = []
GPUS = {"cuda:0": Peer(**HOST), "cuda:1": Peer(**HOST), "cuda:2": Peer("NVIDIA A100-SXM4-80GB", **HOST)}

def pytest_roofline_device(config, name):
    if name is None:
        return GPUS["cuda:0"]
    OPENED.append(name)
    return GPUS[name]

@pytest.fixture
def gpus():
    return GPUS

@pytest.fixture
def opened():
    return OPENED
"""
HEADER = 'HOST = {"launch_s": 2e-6, "record_s": 1e-6, "latency_s": 1e-6}\n'
LINK = "Work(payload_bytes=10**7, wire_bytes=10**7)"
TEST = f"""
def both(gpus):
    gpus["cuda:0"].work(1e-4)
    gpus["cuda:1"].work(3e-4)

def test_it(roofline, gpus):
    roofline.measure(lambda: both(gpus), work={LINK}, devices=("cuda:0", "cuda:1"))
"""


@pytest.fixture
def peers(suite):
    """A suite on two fake GPUs of one host, and a third of another product."""
    suite.pytester.makeconftest(
        "import pytest\nfrom pytest_roofline.engine.devices.fake import FakeDevice\n" + HEADER + TWO
    )
    return suite


def test_the_slowest_device_sets_the_time(peers):
    peers.run(TEST)
    (measurement,) = peers.saved().measurements
    assert measurement.median_s == pytest.approx(3e-4, rel=0.02)


def test_the_hardware_key_says_how_many_and_what_links_them(peers):
    peers.run(TEST)
    (measurement,) = peers.saved().measurements
    assert (measurement.key.hardware.devices, measurement.key.hardware.link) == (2, "unknown")


def test_another_measurement_of_the_same_test_is_of_one_device(peers):
    peers.run(TEST + f'    roofline.measure(lambda: gpus["cuda:0"].work(1e-4), work={LINK}, name="alone")\n')
    assert [m.key.hardware.devices for m in peers.saved().measurements] == [2, 1]


def test_devices_are_opened_once_for_all_tests(peers):
    second = TEST.partition("def test_it")[2]
    result = peers.run(TEST + f"\ndef test_more{second}\ndef test_opened(opened):\n    assert len(opened) == 2\n")
    result.assert_outcomes(passed=3)


def test_a_rotation_is_not_begun_where_one_device_has_too_little_free_memory(peers):
    result = peers.run(
        f"""
def test_it(roofline, gpus, monkeypatch):
    monkeypatch.setattr(gpus["cuda:1"], "free_bytes", lambda: 10**8)
    roofline.measure(lambda *_: gpus["cuda:1"].work(1e-3), work={LINK}, devices=("cuda:0", "cuda:1"),
                     cache="rotate", make_args=tuple)
""",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs * of free memory to rotate through * sets*, found 100 MB*"])


def test_every_device_gives_its_memory_back(peers):
    result = peers.run(
        TEST
        + """
@pytest.fixture(autouse=True)
def released(gpus, monkeypatch):
    seen = []
    for name, device in gpus.items():
        monkeypatch.setattr(device, "release", lambda name=name: seen.append(name))
    yield
    assert seen[:2] == ["cuda:0", "cuda:1"]
"""
    )
    result.assert_outcomes(passed=1)


def test_devices_of_different_products_are_refused(peers):
    result = peers.run(TEST.replace('("cuda:0", "cuda:1")', '("cuda:0", "cuda:2")'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*are NVIDIA A100-SXM4-80GB and NVIDIA H100 80GB HBM3; expected devices of one product"]
    )


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ("'cuda:0'", "devices is 'cuda:0'; expected names of devices"),
        ("(0, 1)", r"devices is (0, 1); expected names of devices"),
        ("('cuda:0',)", "expected two or more, each once"),
        ("('cuda:0', 'cuda:0')", "expected two or more, each once"),
        ("()", "expected two or more, each once"),
    ],
)
def test_what_names_no_several_devices_is_a_sentence(peers, devices, sentence):
    result = peers.run(TEST.replace('("cuda:0", "cuda:1")', devices))
    result.assert_outcomes(failed=1)
    assert sentence in result.stdout.str()


def test_several_devices_of_a_cpu_are_refused(suite):
    suite.pytester.makeconftest("")
    result = suite.run(TEST.replace("gpus", "tmp_path"), "--roofline-device=cpu")
    result.assert_outcomes(failed=1)
    assert "devices names cuda:0, and cpu is measured" in result.stdout.str()


def test_a_copy_between_devices_is_not_held_against_the_hosts_link(peers):
    # 33 GB/s of payload on an H100, whose PCIe would be its roofline from the host.
    peers.run(TEST)
    (measurement,) = peers.saved().measurements
    assert measurement.ceiling is None
