"""What schedulers, clouds, networks and shells print of a place, rule by rule, and what only looks like it."""

import pytest

from pytest_roofline.bundle.redacting import Redactor


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("hostname=prodnode23", "hostname=host-1"),
        ("host: prodnode22", "host: host-1"),
        ("HOST=prodnode22", "HOST=value-1"),
        ("hostname gpubox77 is", "hostname host-1 is"),
        ("Host prodnode26 is down", "Host host-1 is down"),
        ("prodnode26 is unreachable", "host-1 is unreachable"),
        ("worker on node prodnode20 lost", "worker on node host-1 lost"),
        ("ssh -p 22 prodnode24 uptime", "ssh -p 22 host-1 uptime"),
        ("*** STEP 8812345.0 ON prodnode17 CANCELLED", "*** STEP job-1 ON host-1 CANCELLED"),
        ("JOB 8812346 ON prod-18 CANCELLED", "JOB job-1 ON host-1 CANCELLED"),
        ("(srun) prodnode[30-33,40]", "(srun) host-1"),
        ("reset by peer [prodnode21]:4567", "reset by peer [host-1]:4567"),
        ("rank 3 (prodnode25) timed out", "rank 3 (host-1) timed out"),
        ("NCCL_HOSTID=prodnode19", "NCCL_HOSTID=value-1"),
        ("ip-10-2-3-5", "host-1"),
        ("ubuntu@ip-10-2-3-4", "email-1"),
        ("instance i-0abcd1234ef567890 in us-east-1", "instance job-1 in us-east-1"),
        ("arn:aws:iam::123456789012:role/bobrole", "job-1"),
        ("account=projsecret1 partition=a", "account=job-1 partition=a"),
        ("gcp project my-proj-3344", "gcp project job-1"),
        ("12345.batch and 123456.pbsserver2", "job-1 and job-2"),
        ("job 123 on", "job job-1 on"),
        ("boot_id 3f2b8c6e9d3a4f0fb1aa2233445566aa", "boot_id job-1"),
        ("SN 1320920000124", "SN gpu-1"),
        ("chassis-sn=CZ12345678", "chassis-sn=gpu-1"),
        ("mac 0011.2233.4455", "mac address-1"),
        ("nic AABBCCDDEEFF", "nic address-1"),
        ("guid 0x506b4b0300c3a8b2", "guid address-1"),
        ("GUID 506b:4b03:00c3:a8b2", "GUID address-1"),
        ("fe80::1ff:fe23:4567:890a%eth0 is", "address-1 is"),
        ("pwd=hunter2secret", "pwd=secret-1"),
        ("mysql -u root -phunter4secret\nHost prodnode26", "mysql -u root -psecret-1\nHost host-1"),
        ("sshpass -p hunter3secret ssh", "sshpass -p secret-1 ssh"),
        ("password is hunter2", "password is secret-1"),
        ("Authorization: Basic abc", "Authorization: Basic secret-1"),
        ("sent basic dXNlcjpwYXNzMQ==", "sent basic secret-1"),
        ("npm_AbCdEf0123456789abcdef", "secret-1"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "secret-1"),
        ("glsa_abcdefghijklmno12345", "secret-1"),
        ("dop_v1_abcdefgh12345678", "secret-1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY----- x", "secret-1 x"),
        ("in /home/bob smith/x now", "in path-1 now"),
        (r"C:\Users\Dave Smith\x", "path-1"),
        (r"in C:\Program Files (x86)\Acme Tool\x y", "in path-1 y"),
        ("/mnt/My Drive/bobsecret3/x.py", "path-1"),
        ("path '/data/it's/bobsecret4'", "path 'path-1'"),
        ("at /data/it's/bobsecret4", "at path-1"),
        (r"\\fileserver\share name\bobsecret5", "path-1"),
        ("User 'bobsecret7' denied", "User 'user-1' denied"),
        ("user bobsecret6 not allowed", "user user-1 not allowed"),
        ("uid 1001 (bobsecret8)", "uid 1001 (user-1)"),
        ("http://localhost:8000/alice", "url-1"),
        ("/usr/people/x and /tmp/x", "path-1 and path-2"),
    ],
)  # fmt: skip
def test_what_gives_a_place_away_is_replaced(text, redacted):
    assert redacted == Redactor().text(text)


@pytest.mark.parametrize(
    "text",
    [
        "tcp://127.0.0.1:29500, http://localhost:8000 and http://[::1]:80/",
        "/tmp, /usr/bin/env, /bin/sh, /opt/rocm/lib and /usr/local/cuda-12.4/bin",
        "on Debian it is 127.0.1.1",
        "host to device, host: h2d, server: http2, node is ready, on node of rank3",
        "test_x[size64]:12 and all_reduce[2-1]",
        "job 250 ms, job 100 of 200",
        "0xffffffffffffffff, 0x7f0012345678 and 0000:1a:00.0",
        "x[1::2] of c10::add",
        "torch.int, self.private and df.at",
        "for each token: 2 FLOPs, no token: the end of a run",
        "basic comparison, bearer of something",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ],
)
def test_what_only_looks_like_it_stays(text):
    assert text == Redactor().text(text)


def test_people_with_two_names_are_found_by_either():
    redactor = Redactor()
    redactor.learn_from(r"C:\Users\Dave Smith\x")
    text = redactor.text("Dave Smith, dave and Smith")
    assert not {"dave", "smith"} & set(text.lower().replace(",", "").split())
