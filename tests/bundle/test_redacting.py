"""Names are replaced wherever they stand, by the same placeholder everywhere; what the analysis needs stays."""

import base64
import json
import math
import time

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.bundle.making import make_bundle
from pytest_roofline.bundle.redacting import Redactor, command, redacted_run, summary_lines
from pytest_roofline.bundle.sources import redacted_source
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.judgements import Judgement, SessionRecord
from pytest_roofline.core.memory import MemoryUse, OutOfMemory
from pytest_roofline.core.profiles import Figure, Profile
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.resources import ExactJudgement, FigureChange, ResourceKey, Resources
from pytest_roofline.core.samples import Block, Calibration, Ranks, Samples

UUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
REPLACED = [
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
    ("job 47111 ended", "job job-1 ended"),
    ("container 3f2504e04f89", "container job-1"),
    ("pod trainer-5d4f8c7b9d-x2x8z", "pod job-1"),
    ("MY_DATA=/secret/place ran", "MY_DATA=value-1 ran"),
    ("USER=alice", "USER=value-1"),
    ("rank 3 on node17 died", "rank 3 on host-1 died"),
    ("srun -w node[1-4] x", "srun -w host-1 x"),
    ("reached login3.hpc.corp.internal", "reached host-1"),
    ("uid=1000(alice) gid=1000(staff)", "uid=1000(user-1) gid=1000(user-2)"),
    ("prodnode26 is unreachable", "host-1 is unreachable"),
    ("ssh -p 22 prodnode24 uptime", "ssh -p 22 host-1 uptime"),
    ("*** STEP 8812345.0 ON prodnode17 CANCELLED", "*** STEP job-1 ON host-1 CANCELLED"),
    ("reset by peer [prodnode21]:4567", "reset by peer [host-1]:4567"),
    ("rank 3 (prodnode25) timed out", "rank 3 (host-1) timed out"),
    ("NCCL_HOSTID=prodnode19", "NCCL_HOSTID=value-1"),
    ("ip-10-2-3-5", "host-1"),
    ("instance i-0abcd1234ef567890 in us-east-1", "instance job-1 in us-east-1"),
    ("arn:aws:iam::123456789012:role/bobrole", "job-1"),
    ("12345.batch and 123456.pbsserver2", "job-1 and job-2"),
    ("job 123 on", "job job-1 on"),
    ("boot_id 3f2b8c6e9d3a4f0fb1aa2233445566aa", "boot_id job-1"),
    ("SN 1320920000124", "SN gpu-1"),
    ("chassis-sn=CZ12345678", "chassis-sn=gpu-1"),
    ("mac 0011.2233.4455", "mac address-1"),
    ("nic AABBCCDDEEFF", "nic address-1"),
    ("guid 0x506b4b0300c3a8b2", "guid address-1"),
    ("mysql -u root -phunter4secret\nHost prodnode26", "mysql -u root -psecret-1\nHost host-1"),
    ("sent basic dXNlcjpwYXNzMQ==", "sent basic secret-1"),
    ("dop_v1_abcdefgh12345678", "secret-1"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY----- x", "secret-1 x"),
    (r"C:\Users\Dave Smith\x", "path-1"),
    (r"in C:\Program Files (x86)\Acme Tool\x y", "in path-1 y"),
    ("/mnt/My Drive/bobsecret3/x.py", "path-1"),
    ("at /data/it's/bobsecret4", "at path-1"),
    (r"\\fileserver\share name\bobsecret5", "path-1"),
    ("user bobsecret6 not allowed", "user user-1 not allowed"),
    ("uid 1001 (bobsecret8)", "uid 1001 (user-1)"),
    ("http://localhost:8000/alice", "url-1"),
    ("/usr/people/x and /tmp/x", "path-1 and path-2"),
]  # fmt: skip

# Keys of services: how they begin, and how many characters follow, of the kind that is named; and what only its
# surroundings tell. All of it is made up here, so that no scanner finds a key in this file.
HEX, UPPER, MIXED = (
    "0123456789abcdef",
    "ABCDEFGHJKLMNPQRSTUVWXYZ23456789",
    "aB3dE5gH7jK9mN2pQ4rS6tV8wX",
)
KEYS = [
    ("nvapi-", 64, MIXED), ("AKIA", 16, UPPER), ("ASIA", 16, UPPER), ("AccountKey=", 86, MIXED),
    ("sv=2022&sig=", 43, MIXED),
    ("sk_live_", 24, MIXED), ("rk_live_", 24, MIXED), ("whsec_", 32, MIXED), (f"SG.{MIXED[:22]}.", 43, MIXED),
    ("xapp-1-A0B1C2-123456-", 64, HEX), ("xoxb-123456789012-", 24, MIXED), ("hvs.", 90, MIXED), ("s.", 24, MIXED),
    ("dckr_pat_", 27, MIXED), ("dapi", 32, HEX), ("glrt-", 20, MIXED), ("glpat-", 20, MIXED), ("glcbt-64_", 20, MIXED),
    ("ya29.", 120, MIXED), ("AIza", 35, MIXED), ("GOCSPX-", 28, MIXED), ("github_pat_", 82, MIXED), ("ghs_", 36, MIXED),
    ("hf_", 34, MIXED), ("sk-proj-", 120, MIXED), ("sk-ant-api03-", 93, MIXED), ("npm_", 36, MIXED),
    ("pypi-", 80, MIXED),
    ("dop_v1_", 64, HEX), ("shpat_", 32, HEX), ("lin_api_", 40, MIXED), ("ntn_", 46, MIXED), ("figd_", 40, MIXED),
    ("tskey-auth-", 40, MIXED), ("HRKU-", 58, MIXED), ("gsk_", 52, MIXED), ("r8_", 37, MIXED), ("lsv2_pt_", 43, HEX),
    ("123456789:", 35, MIXED), ("SK", 32, HEX), ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.", 43, MIXED),
    ("AGE-SECRET-KEY-1", 58, UPPER), ("sqp_", 40, HEX), ("LTAI", 20, MIXED), ("AKID", 32, MIXED), ("waka_", 36, HEX),
    ("ddp_", 36, MIXED), ("tvly-", 32, MIXED), ("pcsk_", 70, MIXED), ("kgat_", 32, HEX), ("re_aB3dE5gH_", 24, MIXED),
    ("sgp_0123456789abcdef_", 40, HEX), ("patAb3dE5gH7jK9mN.", 64, HEX), ("sl.", 130, MIXED), ("fm2_", 200, MIXED),
    ("pa-", 43, MIXED), (f"t1.9eu{MIXED}{MIXED}.", 86, MIXED),
]  # fmt: skip
PASSWORD = "Wj8fK2pQx7"
TOLD = [
    "curl -u bob:{} -O x", "curl --user 'bob:{}' x", "curl -ubob:{} x", "machine h login bob password {}",
    "login bob\npassword {}",
    "pw={}", "pw: {}", "pass={}", "passwd={}", "passphrase {}", "wget --http-password {} x", "redis-cli -a {} ping",
    "docker login -u bob -p {} nvcr.io", "db.x:5432:main:bob:{}", "postgres://bob:{}@db/x", "X-Api-Key: {}",
    "PRIVATE-TOKEN: {}",
    "Authorization: token {}", "AWS_SECRET_ACCESS_KEY={}", "aws_secret_access_key = {}", "encryption_key={}",
    "clientSecret: {}",
    "Server=x;Password={};", "SharedAccessKey={}", "- name: HF_TOKEN\n  value: {}", "<password>{}</password>",
    "password = correct {}", "cookie: Cookie: a=b; sid={}; x",
    "Set-Cookie: sid={}; Secure", "openssl enc -k {} -in x", "7z x a.7z -p{}", "unzip -P {} a.zip",
    "htpasswd -cbB .htpasswd bob {}",
    '{{"username":"bob","key":"{}"}}', 'curl --user "bob:{}" x',
    '{{"name": "DB_PASSWORD", "value": "{}"}}', '<add key="ApiToken" value="{}"/>', 'os.getenv("API_TOKEN", "{}")',
    'wandb.login(key="{}")', "wandb login --relogin --host https://w.x {0}{0}", "--ServerApp.token '{}'", 'psk="{}"',
    "StoragePass={}", "set -x API_TOKEN {}", "aws configure set aws_secret_access_key {}", "fs.s3a.secret.key={}",
    "fs.azure.account.key.x.blob.core.windows.net={}", "ipmitool -H b -U a -P {} power", "podman login -u b -p {} x",
    "skopeo copy --src-creds bob:{} x", "Ocp-Apim-Subscription-Key: {}", "wandb_key={}",
    "redis-server --requirepass {}",
]  # fmt: skip
# A text with a key in it, in files of every kind.
KINDS = [
    "12:00 [info] with {} for it", "it was {}.", "(`{}`)", '{{"a": ["{}"]}}', "key: {}", 'key = "{}"', "MY_KEY={}",
    "export NCCL_X='{}'",
    '{{"source": ["!login {}\\n", "k = \\"{}\\"\\n", "\\n{}"]}}', "machine h login bob password {}",
    "GET /x?key={}&y=1",
]  # fmt: skip


def test_keys_of_known_services_and_passwords_by_their_surroundings_are_gone_from_files_of_every_kind():
    wrong = []
    for begins, length, kind in KEYS:
        tail = (kind * 9)[:length]
        wrong += [
            text
            for one in KINDS
            if tail in Redactor().text(text := one.format(*[begins + tail] * 3))
        ]
        source = redacted_source(
            Redactor(), f"k = {begins + tail!r}\n# {begins + tail}\nf(b'\\n{begins + tail}')\n"
        )
        wrong += [source] if tail in source else []
    for told in TOLD:
        shown = [
            Redactor().text(text)
            for text in (told.format(PASSWORD), json.dumps({"source": [told.format(PASSWORD)]}))
        ]
        wrong += [text for text in shown if PASSWORD in text]
    assert wrong == []


def test_machines_are_found_where_tools_print_them_though_no_digit_tells():
    for text in (
        "{}:3442:3450 [0] NCCL INFO Using network IB", "[{}:12345] *** Process received signal ***",
        "#  Rank  0 Group  0 Pid  3442 on   {} device  0 [0x1a] NVIDIA H100", "srun: error: {}: task 0: Killed",
        "NCCL INFO Connected to {}<48231>", "  host      : {}", "machine {} login bob password x",
        "{}: Test NCCL failure all_reduce.cu:44 'unhandled'", " .. {} pid 3442: Test failure common.cu:891",
        "{}:3442:3450 [-1] NCCL WARN x",
    ):  # fmt: skip
        redactor = Redactor()
        redactor.learn_from(text.format("mercury"))
        assert "mercury" not in redactor.text(text.format("mercury") + " and mercury"), text


def test_what_the_scanner_of_others_knows_is_redacted_too_also_in_base64():
    pytest.importorskip("kingfisher_sdk")
    key = "A3-ASWWYB-798JRYLJVD4-23DC2-86TVM-H43EB"
    hidden = base64.b64encode(b"token of mine: ghp_" + (MIXED * 2)[:36].encode()).decode()
    assert Redactor().text(f"é {key} and {hidden}.") == "é secret-1 and secret-2."
    assert Redactor(["secrets"]).text(key) == key


# What the analysis needs, and what only looks like a name.
STAYS = [
    "perf_tests/test_memcpy.py::test_memcpy_h2h[64MiB-pinned]",
    "+104.2 % time (57.8 GB/s, baseline 118 GB/s) REGRESSED, tolerance 5 %, 99 % interval +87.3 … +122.7 %",
    "INVALID: 1.7 of 2 cores busy; tokens: 4096, 512 tokens/s, and/or ms/call",
    "start.job 250 ms, job: 2.50 s, job_wall_s 1234.5",
    'cfg.get("unk_token", "<unk>"), d.get("token", "a") and config.set_token, add token 7',
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
    # Hashes of commits, images, kernels and files are no secrets.
    "commit 96f1a0a0c35842c183fadef2c54dd6e3aabbccdd, torch 2.10.0+git96f1a0a0",
    "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "kernel 7Y2ZKXO4N3QF5PCKJ6VG5TTQ5A2LJDQ6WUPM5QSLRHIWLTJ5M4QA of triton_per_fused_add_native_layer_norm_0",
    "flash[pass=forward] pw=300W, pass: 3 of 4, password reset, --user alice -x, docker run -u 1000:1000",
    "sk-hynix-hbm3-memory-module, ddp_allreduce_bandwidth2, re_compiled_patterns, secret_sharing_of_keys",
]


def test_what_gives_a_place_away_is_replaced_and_what_the_analysis_needs_stays():
    cases = [*REPLACED, *((text, text) for text in STAYS)]
    wrong = {
        text: found for text, expected in cases if (found := Redactor().text(text)) != expected
    }
    assert wrong == {}


def learned(*names, category="hosts", keep=()):
    redactor = Redactor(keep)
    for name in names:
        redactor.learn(category, name)
    return redactor


def test_a_known_name_is_found_where_it_stands_alone():
    cases = [
        ("hosts", "node17", "node17 and NODE17", "host-1 and host-1"),
        ("hosts", "node17", "on node17-eth0, node170, xnode17", "on host-1-eth0, node170, xnode17"),
        ("hosts", "node17", "at node17.secret.place now", "at host-1 now"),
        (
            "hosts",
            "node17.corp.internal",
            "node17, node17.corp.internal and NODE17.x",
            "host-1, host-1 and host-1",
        ),
        ("hosts", "10.1.2.3", "10 of 10.1.2.3", "10 of host-1"),
        ("users", "élise", "by élise, 在élise上, xélise", "by user-1, 在user-1上, xélise"),
        ("users", "o'hara", "by o'hara, xo'hara", "by user-1, xo'hara"),
        ("users", "_svc-build", "by _svc-build", "by user-1"),
        ("users", "Dave Smith", "by Dave Smith", "by user-1"),
        ("users", "é", "by é", "by é"),
        *(
            ("users", name, "root test node x", "root test node x")
            for name in ("root", "test", "node", "x", "")
        ),
        ("users", "alice", "x /data/alice-files/alice y", "x path-1 y"),
        ("users", "alice", "password=/home/alice/x", "password=secret-1"),
    ]
    wrong = [
        (case, found)
        for case in cases
        if (found := learned(case[1], category=case[0]).text(case[2])) != case[3]
    ]
    assert wrong == []


def test_people_and_machines_are_learned_where_a_text_names_them():
    cases = [
        ("/home/alice/x", "by alice, not by malice", "by user-1, not by malice"),
        ("C:\\Users\\Dave Smith\\x", "dave and Smith", "user-2 and user-1"),
        ("rank 3 on node17 died", "node17 is slow", "host-1 is slow"),
        ("--roofline-address=node17", "node17 is slow", "host-1 is slow"),
        ("srun --nodelist node17 x", "node17 is slow", "host-1 is slow"),
        ("rank 3 on the other side", "the clock", "the clock"),
        ("no such user: the one that was asked for", "the clock", "the clock"),
    ]
    for source, text, expected in cases:
        redactor = Redactor()
        redactor.learn_from(source)
        words = redactor.text(text)
        # Two names of one person have two placeholders, in either order.
        assert words in (expected, expected.replace("user-2 and user-1", "user-1 and user-2")), (
            source
        )


def test_what_was_replaced_is_counted_and_never_shown():
    redactor = Redactor(["paths"])
    redactor.text("10.1.2.3 and 10.1.2.3 and 10.1.2.4 in /srv/x")
    said = ["replaced by placeholders: addresses: 2", "kept as they are: paths"]
    assert summary_lines(redactor.summary(), redactor.keep) == said
    assert summary_lines({}, ()) == ["replaced by placeholders: nothing"]


def test_a_text_of_one_part_again_and_again_ends_soon():
    # What looks ahead to the end from every place takes minutes of the processor for so many; this takes milliseconds.
    parts = [
        "a-",
        "a.",
        "_",
        "A_",
        "-a",
        "a@",
        "/a",
        ":a",
        "ssh ",
        "token",
        "a-sn",
        "/A ",
        "mysql ",
        "abc1 ",
    ]
    for part in parts:
        began = time.process_time()
        Redactor().text(part * 20_000)
        assert time.process_time() - began < 10, part


def test_a_command_line_is_read_word_by_word():
    cases = [
        (["pytest", "-k", "memcpy"], ["pytest", "-k", "memcpy"]),
        (["--token", "x y z"], ["--token", "secret-1"]),
        (["--token", "--quiet"], ["--token", "--quiet"]),
        (["-u", "bob:x y"], ["-u", "secret-1 y"]),
        (["/a b/c d"], ["path-1"]),
        (["--out=/a b/c d"], ["--out=path-1"]),
        (["--roofline-address=n5.x"], ["--roofline-address=host-1"]),
    ]
    assert [(words, command(Redactor(), words)) for words, _ in cases] == cases
    words = ["--token=hunter2", "/srv/x", "--token", "hunter2"]
    assert command(Redactor(["paths"]), words) == [
        "--token=secret-1",
        "/srv/x",
        "--token",
        "secret-1",
    ]


# What a text may hold, and of it what must be found nowhere.
PLANTED = (
    f" at /home/alice/hidden-project by alice@corp.example.com on gpunode17.corp.internal (10.1.2.3, "
    f"fe80::1ff:fe23:4567:890a, 00:1a:2b:3c:4d:5e) GPU-{UUID} serial 1650421003455 --token=hunter2hunter slurm job "
    "4711123 MY_DIR=topsecretvalue https://bob:pw@git.corp.example/x ghp_abcdefghijklmnopqrst0123 for alice and "
    "gpunode17"
)  # fmt: skip
SECRETS = (
    "alice", "hidden-project", "corp", "gpunode17", "10.1.2.3", "fe80", "00:1a:2b", UUID, "1650421003455", "hunter2",
    "4711123", "topsecretvalue", "git.corp", "bob", "ghp_",
)  # fmt: skip
# Fields with a fixed set of words, times, names of products, whose words always stay, and names that are planted below.
FIXED = {
    "type", "cache", "timing", "mode", "outcome", "unit", "started", "finished", "phase", "category", "made", "tool",
    "product", "cpu_model", "architecture", "hosts",
}  # fmt: skip


@pytest.fixture
def everything(make, tmp_path):
    """A run file with a record of every kind, every text of which ends with all that must not be given away."""
    one = make.measurement(
        samples=Samples(
            (1e-3, 1.1e-3),
            1,
            1e-9,
            blocks=(Block(1, "thermal slowdown"), Block(1)),
            labels=("noisy",),
        ),
        ceiling=Ceiling("traffic_GBps", 4.8e12, "datasheet", "sheet"),
        invalid="odd",
        ranks=Ranks(2, "local", "nccl", ("gpunode17", "gpunode18"), ((1e-3, 1e-3), (1e-3, 1e-3))),
    )
    told = {"test_id": one.test_id, "label": one.label}
    judged = Judgement(
        **told, verdict="REGRESSED", tolerance=0.05, reason="slow", estimate=math.log(1.3), new_s=1.3e-3,
        reference_s=1e-3, source="base", remarks=("told",), published=("figure",),
        reference=(SessionRecord((1e-3,), f"GPU-{UUID}", "2026-01-01T00:00:00Z"),),
    )  # fmt: skip
    kernel = ResourceKey("flash", {"d": "64"}, "sm_90", "k")
    records = [
        Calibration("cuda:0", 1e-9, 1e-6, 1e-6, 1e-6, process="p"),
        one,
        Figure(**told, process="p", name="share", value=0.5, unit="share"),
        MemoryUse(
            **told, process="p", device="cuda:0", name="f", peak_bytes=8, phase="forward", categories={"parameters": 8},
            before_bytes=8, missing=("none",),
        ),
        Profile(**told, process="p", device="cuda:0", calls=3, span_s=1.0, trace="trace.json", missing=("none",)),
        Resources(kernel, "test_k.py::test_k", "flash", "p", {"registers": 64}, options={"a": "b"},
                  arguments={"x": "y"}, compiler={"triton": "3.9"}, unread="no", invalid="no"),
        OutOfMemory("test_o.py::test_o", "o", {"x": "y"}, "o", "p", "cuda:0", "CUDA out of memory"),
        make.outcome(one, "failed", verdicts=("REGRESSED",), reason="slow", by_verdict=True),
        judged,
        ExactJudgement("test_k.py::test_k", "flash", "sm_90", "REGRESSED", "k", "more", "base",
                       (FigureChange("registers", 1, 64, "worse"),), ("told",)),
        make.footer(not_measured={"why": 1}),
    ]  # fmt: skip
    path = make.save(tmp_path / "r.jsonl", *records)
    lines = [plant(json.loads(line)) for line in path.read_text().splitlines()]
    lines[0]["environment"]["host"]["name"] = "gpunode17"
    lines[0]["environment"]["device"]["uuid"] = f"GPU-{UUID}"
    lines[0]["command"] += [
        "--password",
        "correct horse",
        "--out=/home/alice/My Documents/x",
        "/mnt/alice's/y z",
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def plant(value, name=""):
    """The same data, every free text of which has the names behind it."""
    if isinstance(value, dict):
        free = name in (
            "parameters",
            "software",
            "options",
            "arguments",
            "compiler",
            "not_measured",
        )
        return {
            key + PLANTED * free: plant(inner, "" if free else key) for key, inner in value.items()
        }
    if isinstance(value, list):
        return [plant(inner, name) for inner in value]
    fixed = name in FIXED or value in ("datasheet", "worse", "traffic_GBps", "parameters", "before")
    return value + PLANTED if isinstance(value, str) and not fixed else value


def clean(path):
    return redacted_run(Redactor(), read_run(path))


def test_no_name_is_left_anywhere_in_the_archive_and_the_rows_say_the_same(everything, tmp_path):
    before = read_run(everything)
    run, text = clean(everything)
    # A name has one placeholder in all records.
    host, device = run.header.environment.host.name, run.header.environment.device.uuid
    assert host == run.measurements[0].ranks.hosts[0]
    assert host in run.judgements[0].reason
    assert f" {device} " in run.judgements[0].reason
    path = tmp_path / "clean.jsonl"
    path.write_text(text, encoding="utf-8")
    rows = [[(row.what, row.red, row.time_s, row.change) for row in rows_of_run(one)]
            for one in (before, run, read_run(path))]  # fmt: skip
    assert rows[0] == rows[1] == rows[2]
    code = f"# made{PLANTED}\nimport torch\n\n\ndef test_x():\n    assert '''{PLANTED}'''\n"
    everything.with_name("test_memcpy.py").write_text(code, encoding="utf-8")
    made = make_bundle(before, ["memcpy", "flash", "test_o"], Redactor(), tmp_path)
    # The wheel holds this package alone, and in what is compressed any three letters stand somewhere by chance.
    files = [name.encode() + data for name, data in made.files.items() if not name.endswith(".whl")]
    assert len(files) > 5
    planted = (*SECRETS, "correct horse", "documents")
    assert {
        secret for secret in planted for data in files if secret.lower().encode() in data.lower()
    } == set()


def test_what_the_analysis_needs_is_as_it_was_and_kept_categories_stay(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(1.3e-3, 1.4e-3))
    before, after = read_run(path), clean(path)[0]
    assert before.measurements == after.measurements
    facts = after.header.environment
    assert ("host-1", "gpu-1", "570.86") == (
        facts.host.name,
        facts.device.uuid,
        facts.device.driver,
    )
    assert before.header.environment.software == facts.software
    redactor = Redactor(["hosts", "devices"])
    redactor.leave(["24.20.19.4"])
    assert (
        redactor.text(f"GPU-{UUID}, 24.20.19.4 and 10.1.2.3")
        == f"GPU-{UUID}, 24.20.19.4 and address-1"
    )
    assert redactor.whole("hosts", "node17") == "node17"
    with pytest.raises(
        BadInput, match="--keep names nonsense; expected some of secrets, urls, emails"
    ):
        Redactor(["hosts", "nonsense"])


def test_a_machine_that_is_called_like_a_word_of_the_file_does_not_undo_it(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(1e-3))
    text = path.read_text()
    for name in ("seconds", "passed", "warm", "H200", "label"):
        path.write_text(text.replace('"name": "node"', f'"name": "{name}"'), encoding="utf-8")
        assert clean(path)[0].header.environment.host.name == "host-1"


def test_a_name_within_the_name_of_a_product_does_not_stay(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(1e-3))
    header, *others = path.read_text(encoding="utf-8").splitlines()
    plain = json.loads(header)
    plain["environment"]["device"]["product"] = (
        "NVIDIA H200 rented by carolsmith on gpubox77.acmecorp"
    )
    plain["environment"]["host"] |= {"name": "gpubox77", "cpu_model": "Intel Xeon vcpu carolsmith"}
    plain["command"] = ["pytest", "--rootdir=/home/carolsmith/x"]
    path.write_text("\n".join([json.dumps(plain), *others]) + "\n", encoding="utf-8")
    run, text = clean(path)
    assert "carolsmith" not in text
    environment = run.header.environment
    assert environment.device.product == "NVIDIA H200 rented by user-1 on host-1"
    assert environment.host.cpu_model == "Intel Xeon vcpu user-1"
