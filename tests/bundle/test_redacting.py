"""Names are replaced wherever they stand, by the same placeholder everywhere; what the analysis needs stays."""

import time

import pytest

from pytest_roofline.bundle.patterns import CATEGORIES
from pytest_roofline.bundle.redacting import Redactor, summary_lines
from pytest_roofline.core.errors import BadInput

UUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("see /home/alice/project/x.py:12", "see path-1:12"),
        ("see '/home/alice/My Files/x.py'", "see 'path-1'"),
        ("cd ~alice/runs and ~/runs", "cd path-1 and path-2"),
        (r"in C:\Users\Alice\x.py", "in path-1"),
        (r"on \\files\share\x", "on path-1"),
        ("cc -I/opt/site/include", "cc -Ipath-1"),
        ("--rootdir=/srv/x", "--rootdir=path-1"),
        ("mail alice.b@corp.example.com now", "mail email-1 now"),
        ("alice@node17:runs", "email-1:runs"),
        ("ssh -p 22 alice@node17 true", "ssh -p 22 email-1 true"),
        ("from 10.1.2.3 to 192.168.0.255", "from address-1 to address-2"),
        ("from fe80::1ff:fe23:4567:890a", "from address-1"),
        ("nic 00:1a:2b:3c:4d:5e is down", "nic address-1 is down"),
        (f"GPU-{UUID} fell off", "gpu-1 fell off"),
        (f"MIG-{UUID}", "gpu-1"),
        ("serial number: 1650421003455", "serial number: gpu-1"),
        ("S/N A1B2C3D4", "S/N gpu-1"),
        ("--token=hunter2 -x", "--token=secret-1 -x"),
        ("--api-key hunter2 -x", "--api-key secret-1 -x"),
        ('{"password": "hunter2"}', '{"password": secret-1}'),
        ("Authorization: Bearer abcdef012345", "Authorization: Bearer secret-1"),
        ("ghp_abcdefghijklmnopqrst0123", "secret-1"),
        ("https://alice:pw@git.corp.example/x?token=1", "secret-1"),
        ("http://10.0.0.1:8080/metrics is up", "url-1 is up"),
        ("SLURM_JOB_ID=4711123", "SLURM_JOB_ID=value-1"),
        ("slurm job 4711123 ended", "slurm job job-1 ended"),
        ("job id 12.pbs-server ended", "job id job-1 ended"),
        ("job 47111 ended", "job job-1 ended"),
        ("container 3f2504e04f89", "container job-1"),
        ("pod trainer-5d4f8c7b9d-x2x8z", "pod job-1"),
        ("MY_DATA=/secret/place ran", "MY_DATA=value-1 ran"),
        ("USER=alice", "USER=value-1"),
        ("rank 3 on node17 died", "rank 3 on host-1 died"),
        ("srun -w node[1-4] x", "srun -w host-1 x"),
        ("reached login3.hpc.corp.internal", "reached host-1"),
        ("uid=1000(alice) gid=1000(staff)", "uid=1000(user-1) gid=1000(user-2)"),
    ],
)  # fmt: skip
def test_what_gives_a_place_away_is_replaced(text, redacted):
    assert redacted == Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "perf_tests/test_memcpy.py::test_memcpy_h2h[64MiB-pinned]",
        "+104.2 % time (57.8 GB/s, baseline 118 GB/s) REGRESSED, tolerance 5 %, 99 % interval +87.3 … +122.7 %",
        "INVALID: 1.7 of 2 cores busy; tokens: 4096, 512 tokens/s, and/or ms/call",
        "start.job 250 ms, job: 2.50 s, job_wall_s 1234.5",
        "2026-01-02T03:04:05Z 20261121T171002.443630-16043",
        "baselines/h200.json, driver 570.86.15, kernel 6.8.0-45-generic",
        "void at::native::vectorized_elementwise_kernel<4, c10::add>(int, float)",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEvi",
        "NCCL_ALGO=Ring OMP_NUM_THREADS=2 CUDA_VISIBLE_DEVICES=0,1",
        "flash_forward[sm_90-64]@sm_90 *bf16:16",
        "/dev/nvidiactl, /proc/stat and 127.0.0.1",
        "torch.nn.functional.scaled_dot_product_attention",
        "96f1a0a0c35842c183fadef2c54dd6e3",
        "roofline baseline propose --accept-slower",
    ],
)
def test_what_the_analysis_needs_stays(text):
    assert text == Redactor().text(text)


def test_a_name_has_one_placeholder_in_any_case_and_with_its_domain_another_text():
    redactor = Redactor()
    redactor.learn("hosts", "node17")
    texts = [redactor.text(text) for text in ("node17 and NODE17", "node18.corp.internal", "on node17-eth0, node170")]
    assert ["host-1 and host-1", "host-2", "on host-1-eth0, node170"] == texts


def test_spellings_of_a_name_can_be_told_apart():
    redactor = Redactor()
    redactor.learn("hosts", "node17")
    redactor.tell_apart()
    assert "host-1, host-2 and host-3" == redactor.text("node17, NODE17 and node17.corp.internal")


@pytest.mark.parametrize("name", ["élise", "o'hara", "_svc-build", "Dave Smith", "é"])
def test_a_name_of_other_characters_is_found_where_it_stands_alone(name):
    redactor = Redactor()
    redactor.learn("users", name)
    expected = name if name == "é" else "user-1"
    assert f"by {expected}, 在{expected}上, x{name}" == redactor.text(f"by {name}, 在{name}上, x{name}")


def test_thousands_of_names_are_looked_for_at_once():
    redactor, count = Redactor(), 10_000
    for number in range(count):
        redactor.learn("users", f"user{number}x")
    began = time.process_time()
    assert "by user-1" == redactor.text("by user9999x")
    assert count == len({redactor.text(f"user{number}x") for number in range(count)})
    # One pattern for each name takes a minute of the processor for these; this takes less than a second.
    assert time.process_time() - began < 10


def test_a_known_host_goes_with_the_domain_behind_it():
    redactor = Redactor()
    redactor.learn("hosts", "node17")
    assert "at host-1 now" == redactor.text("at node17.secret.place now")


def test_a_host_is_the_same_with_its_domain_and_without():
    redactor = Redactor()
    redactor.learn("hosts", "node17.corp.internal")
    assert "host-1, host-1 and host-1" == redactor.text("node17, node17.corp.internal and NODE17.other")
    assert "host-1" == redactor.whole("hosts", "node17.corp.internal")


def test_numbers_are_never_looked_for():
    redactor = Redactor()
    redactor.learn("hosts", "10.1.2.3")
    assert "10 of host-1" == redactor.text("10 of 10.1.2.3")


def test_people_are_learned_from_paths_and_found_elsewhere():
    redactor = Redactor()
    redactor.learn_from("/home/alice/x")
    assert "made by user-1, not by malice" == redactor.text("made by alice, not by malice")


@pytest.mark.parametrize("text", ["rank 3 on node17 died", "--roofline-address=node17", "srun --nodelist node17 x"])
def test_machines_are_learned_where_they_are_named_as_such(text):
    redactor = Redactor()
    redactor.learn_from(text)
    assert "host-1 is slow" == redactor.text("node17 is slow")


@pytest.mark.parametrize("text", ["rank 3 on the other side", "no such user: the one that was asked for"])
def test_a_word_that_is_no_name_is_not_learned(text):
    redactor = Redactor()
    redactor.learn_from(text)
    assert "the clock" == redactor.text("the clock")


@pytest.mark.parametrize("name", ["root", "test", "node", "x", ""])
def test_common_words_are_not_looked_for(name):
    redactor = Redactor()
    redactor.learn("users", name)
    assert "root test node x" == redactor.text("root test node x")


def test_a_field_that_is_a_name_is_replaced_whatever_it_is():
    redactor = Redactor()
    assert ["host-1", "host-1", "host-2", ""] == [redactor.whole("hosts", text) for text in ("node", "node", "b", "")]


def test_a_name_is_of_the_category_that_it_was_learned_as():
    redactor = Redactor()
    redactor.learn("hosts", "node17")
    assert "host-1" == redactor.whole("devices", "node17")


def test_where_two_overlap_nothing_of_either_stays():
    redactor = Redactor()
    redactor.learn("users", "alice")
    assert "secret-1" == redactor.text("password=/home/alice/x").partition("=")[2]
    assert "x path-1 y" == redactor.text("x /data/alice-files/alice y")


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_kept_category_stays_and_the_others_go(category):
    examples = {
        "secrets": "ghp_abcdefghijklmnopqrst0123",
        "urls": "tcp://node:1",
        "emails": "bob@corp.example.com",
        "values": "MY_DATA=xyz",
        "jobs": "container 3f2504e04f89",
        "paths": "/srv/runs",
        "devices": f"GPU-{UUID}",
        "hosts": "db.corp.internal",
        "users": "user: bobby",
        "addresses": "10.1.2.3",
    }
    text = " ; ".join(examples.values())
    kept, redacted = Redactor([category]).text(text), Redactor().text(text)
    assert examples[category] in kept
    assert [name for name, example in examples.items() if example in kept] == [category]
    assert [name for name, example in examples.items() if example in redacted] == []


def test_an_unknown_category_is_refused_with_those_that_there_are():
    with pytest.raises(BadInput, match="--keep names nonsense; expected some of secrets, urls, emails"):
        Redactor(["hosts", "nonsense"])


def test_versions_that_look_like_addresses_stay_where_they_are_known():
    redactor = Redactor()
    redactor.leave(["24.20.19.4"])
    assert "driver 24.20.19.4 from address-1" == redactor.text("driver 24.20.19.4 from 24.20.19.5")


def test_what_was_replaced_is_counted_and_never_shown():
    redactor = Redactor(["paths"])
    written = redactor.text("10.1.2.3 and 10.1.2.3 and 10.1.2.4 in /srv/x, uid=1(bob)").partition(", ")[0]
    summary = redactor.summary([written, "host-1, which nobody was called"])
    assert {"addresses": (2, 3)} == summary
    assert [
        "replaced by placeholders: addresses: 2 (3 times)",
        "kept as they are: paths",
    ] == summary_lines(summary, redactor.keep)


def test_nothing_replaced_is_said_too():
    assert ["replaced by placeholders: nothing"] == summary_lines({}, ())


def test_the_end_of_a_sentence_is_no_part_of_a_path():
    assert "It is in path-1. Look." == Redactor().text("It is in /srv/runs/x.py. Look.")


@pytest.mark.parametrize(
    "part", ["a-", "a.", "_", "A_", "-a", "a@", "/a", ":a", "ssh ", "token", "a-sn", "/A ", "mysql ", "abc1 "]
)
def test_a_text_of_one_part_again_and_again_ends_soon(part):
    # What looks ahead to the end from every place takes minutes of the processor for so many; this takes milliseconds.
    began = time.process_time()
    Redactor().text(part * 20_000)
    assert time.process_time() - began < 10
