"""What exactly ran: code under version control, packages, libraries, variables, caches."""

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from pytest_roofline.core.facts import Code
from pytest_roofline.engine import checkout, identity
from pytest_roofline.engine.identity import identified, libraries, packages


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    names = (
        *checkout._BRANCH,
        *checkout._REQUEST,
        *checkout._TARGET,
        "GITHUB_REF",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA",
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
    # Git takes long on a busy machine.
    monkeypatch.setattr(checkout, "GIT_S", 60.0)

    def clear():
        for cached in (
            checkout._code_at,
            identity._distribution,
            identity._name_and_version,
        ):
            cached.cache_clear()

    clear()
    yield
    clear()


def git(folder, *words):
    settings = (
        "user.name=n",
        "user.email=e@x",
        "protocol.file.allow=always",
        "init.defaultBranch=main",
    )
    own = [word for setting in settings for word in ("-c", setting)]
    done = subprocess.run(
        ["git", "-C", str(folder), *own, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "test_a.py").write_text("A = 1\n", encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def code_of(folder):
    checkout._code_at.cache_clear()
    (found,) = checkout.code_of(folder)
    return found


def test_the_state_of_the_code_is_its_commit_with_a_hash_of_what_differs(repository, tmp_path):
    head = git(repository, "rev-parse", "HEAD")
    assert code_of(repository) == Code(".", head, branch="main")
    (repository / "test_a.py").write_text("A = 2\n", encoding="utf-8")
    once = code_of(repository)
    (repository / "test_a.py").write_text("A = 3\n", encoding="utf-8")
    assert once.changes
    assert once.changes not in ("unknown", code_of(repository).changes)
    assert str(once) == f"{head[:10]} with changes {once.changes}"
    # A file that git does not know, by what stands in it.
    git(repository, "checkout", "-q", ".")
    (repository / "new.py").write_text("A = 1\n", encoding="utf-8")
    once = code_of(repository)
    (repository / "new.py").write_text("A = 2\n", encoding="utf-8")
    assert once.changes
    assert once.changes != code_of(repository).changes
    (repository / "new.py").write_text("A = 1\n", encoding="utf-8")
    assert once.changes == code_of(repository).changes
    # From below the top, in a worktree, detached, in a shallow clone.
    (repository / "below").mkdir()
    assert code_of(repository / "below") == once
    git(repository, "worktree", "add", "-q", "-b", "other", tmp_path / "tree")
    assert code_of(tmp_path / "tree") == Code(".", head, branch="other")
    git(tmp_path / "tree", "checkout", "-q", "--detach")
    assert code_of(tmp_path / "tree") == Code(".", head)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    assert code_of(tmp_path / "shallow") == Code(".", head, branch="main", merge_base=head)
    assert checkout.code_of(tmp_path) == ()


def test_a_change_inside_of_a_submodule_is_a_change(repository, tmp_path):
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "--quiet", "add", str(repository), "inner")
    git(outer, "commit", "-qm", "outer")
    assert code_of(outer).changes == ""
    (outer / "inner" / "test_a.py").write_text("A = 9\n", encoding="utf-8")
    assert code_of(outer).changes
    assert code_of(outer / "inner").changes


GITHUB = {"GITHUB_REF": "refs/pull/12/merge", "GITHUB_HEAD_REF": "mine", "GITHUB_BASE_REF": "main"}
JENKINS = {
    "CHANGE_ID": "12",
    "CHANGE_BRANCH": "mine",
    "BRANCH_NAME": "PR-12",
    "CHANGE_TARGET": "main",
}


@pytest.mark.parametrize("told", [GITHUB, JENKINS], ids=["GitHub", "Jenkins"])
def test_ci_says_what_a_detached_commit_is_of(repository, tmp_path, monkeypatch, make, told):
    base = git(repository, "rev-parse", "HEAD")
    git(tmp_path, "clone", "-q", str(repository), "clone")
    git(tmp_path / "clone", "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path / "clone", "checkout", "-q", "--detach")
    head = git(tmp_path / "clone", "rev-parse", "HEAD")
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    expected = Code(".", head, branch="mine", merge_base=base, pull_request="12")
    assert identified(make.environment(), tmp_path / "clone").code[0] == expected
    # Of the base of `roofline ab`, in a worktree, CI says nothing.
    side = {"checkout": str(repository), "folder": str(tmp_path / "clone")}
    found = identified(make.environment(), tmp_path / "clone", side).code[0]
    assert found == Code(".", head, merge_base=base)


def test_without_git_and_where_it_takes_too_long_nothing_is_invented(
    repository, tmp_path, monkeypatch
):
    class OfNoState(subprocess.Popen):
        def communicate(self, input=None, timeout=None):  # noqa: A002 - its own name
            assert 0 < timeout <= checkout.GIT_S
            if "status" in self.args:
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().communicate(input, timeout)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", OfNoState)
        assert code_of(repository).changes == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    checkout._code_at.cache_clear()
    assert checkout.code_of(repository) == ()


def distribution(folder, name, version, files, **texts):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    if files:
        lines = [f"{file},sha256=x,1\n" for file in files]
        (info / "RECORD").write_text("".join(lines), encoding="utf-8")
    for file, text in texts.items():
        (info / file.replace("__", ".")).write_text(text, encoding="utf-8")


def import_stand_ins(monkeypatch, site, *names):
    """Have these modules alone imported, as files of a folder of packages."""
    monkeypatch.setattr(sys, "path", list(dict.fromkeys([str(site), *sys.path])))
    modules = {name: types.ModuleType(name) for name in names}
    for name, module in modules.items():
        module.__file__ = str(site / name / "__init__.py")
    put_in_place(monkeypatch, modules)
    return modules


def put_in_place(monkeypatch, modules):
    stand_in = types.SimpleNamespace(modules=modules, stdlib_module_names=sys.stdlib_module_names)
    monkeypatch.setattr(identity, "sys", stand_in)


def test_packages_are_those_of_which_a_module_is_imported(tmp_path, monkeypatch):
    """A module whose distribution has another name stands by its own, with the version that it states."""
    site, below = tmp_path / "site-packages", tmp_path / "below" / "site-packages"
    distribution(site, "Plain", "1.0", [])
    distribution(site, "fast_thing", "2.0", [])
    distribution(site, "PyOther", "3.0", [])
    distribution(site, "unseen", "4.0", [])
    distribution(below, "plain", "0.9", [])
    names = ("plain", "fast_thing", "other", "silent", "_distutils_hack", "json", "test_of_mine")
    monkeypatch.syspath_prepend(str(below))
    modules = import_stand_ins(monkeypatch, site, *names)
    modules["other"].__version__ = "3.0"
    modules["test_of_mine"].__version__ = "1"
    modules["test_of_mine"].__file__ = str(tmp_path / "test_of_mine.py")
    assert packages() == {"fast-thing": "2.0", "other": "3.0", "plain": "1.0"}


def test_two_builds_of_a_version_differ_by_the_archives_that_they_were_installed_from(
    tmp_path, monkeypatch
):
    def archive(**hashes):
        origin = {"url": "file:///wheels/fast-1.whl", "archive_info": {"hashes": hashes}}
        return json.dumps(origin)

    site = tmp_path / "site-packages"
    distribution(site, "fast", "1", [], direct_url__json=archive(sha256="0123456789abcdef"))
    distribution(site, "other", "1", [], direct_url__json=archive())
    import_stand_ins(monkeypatch, site, "fast", "other")
    assert packages() == {"fast": "1#01234567", "other": "1"}


def test_code_that_packages_were_installed_from_is_told_as_well(repository, tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    (tmp_path / "link").symlink_to(repository)
    editable = {"url": (tmp_path / "link").as_uri(), "dir_info": {"editable": True}}
    checked_out = {"url": "https://x/y.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}
    copied = {"url": repository.as_uri(), "dir_info": {}}
    for name, origin in (
        ("mine", editable),
        ("theirs", checked_out),
        ("copied", copied),
        ("odd", []),
    ):
        files = [f"{name}/__init__.py"]
        distribution(site, name, "1", files, direct_url__json=json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(site)])
    head = git(repository, "rev-parse", "HEAD")
    assert list(identity._installed_code()) == [
        Code("mine", head, branch="main"),
        Code("theirs", "c0ffee"),
    ]
    # Where a worktree stands for the folder that it was installed from, that is what runs.
    git(repository, "worktree", "add", "--detach", str(tmp_path / "side"), "HEAD")
    (tmp_path / "side" / "new.py").write_text("")
    side = {"checkout": str(repository), "folder": str(tmp_path / "side")}
    mine, _ = identity._installed_code(side)
    assert (mine.commit, mine.branch, bool(mine.changes)) == (head, "", True)
    # A copy of the folder is what runs wherever the worktree is.
    import_stand_ins(monkeypatch, site, "mine", "theirs", "copied", "odd")
    assert list(identity.copied_from(side)) == []
    (repository / "test_a.py").write_text("A = 2\n")
    assert list(identity.copied_from(side)) == [f"copied 1, installed from {repository}"]


def test_variables_that_steer_libraries_are_kept_and_secrets_are_not():
    environ = {
        "NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_MAX_AUTOTUNE": "1", "HOME": "/root",
        "TRITON_API_KEY": "x", "TORCH_TOKEN": "x", "UCX_PASSWORD": "x", "PYTORCH_INDEX": "https://me:pw@host/simple",
        "HSA_OVERRIDE_GFX_VERSION": "9.4.2", "LD_LIBRARY_PATH": "/opt/lib",
    }  # fmt: skip
    kept = [
        "HSA_OVERRIDE_GFX_VERSION",
        "LD_LIBRARY_PATH",
        "NCCL_ALGO",
        "OMP_NUM_THREADS",
        "TORCHINDUCTOR_MAX_AUTOTUNE",
    ]
    assert list(identity.variables(environ)) == kept


def mapped(monkeypatch, *paths, **modules):
    """Have the process map these files, and import these modules."""
    lines = [f"7f00-7f01 r-xp 00000000 00:00 1          {path}" for path in paths]
    lines.append("7f02-7f03 rw-p 00000000 00:00 0")
    monkeypatch.setattr(identity, "read", lambda path: "\n".join(lines))
    put_in_place(monkeypatch, modules)


@pytest.mark.parametrize("wheel", ["nvidia_cublas_cu12", "nvidia_cublas"])
def test_libraries_are_those_mapped_by_path_with_the_version_of_their_file_or_wheel(
    wheel, tmp_path, monkeypatch
):
    site, file = tmp_path / "site-packages", "nvidia/cublas/lib/libcublas.so.12"
    distribution(site, "nvidia_nccl_cu12", "1", [])
    distribution(site, wheel, "12.8.4.1", [])
    monkeypatch.setattr(sys, "path", [str(site)])
    nccl = "/usr/lib/with a space/libnccl.so.2.27.3"
    torch = types.SimpleNamespace(version=types.SimpleNamespace(cuda="12.8"))
    mapped(monkeypatch, nccl, site / file, "/lib/libc.so.6", "/opt/libMIOpen.so", torch=torch)
    expected = {file: "12.8.4.1", nccl: "2.27.3", "/opt/libMIOpen.so": "unknown"}
    assert libraries() == expected


def test_a_library_that_variables_put_in_place_is_one_of_them(tmp_path, monkeypatch):
    folder, hook, sibling = tmp_path / "mine", "/opt/hook.so", f"{tmp_path}/mine/below/libb.so"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'link'}:")
    monkeypatch.setenv("LD_PRELOAD", f"/opt/first.so {hook}")
    mapped(monkeypatch, folder / "libkernels.so.3", hook, sibling, "/usr/lib/libz.so.1")
    assert libraries() == {f"{folder}/libkernels.so.3": "3", hook: "unknown"}


def test_a_library_linked_into_torch_stands_by_its_name(monkeypatch):
    text = "PyTorch built with:\n  - Intel(R) oneAPI Math Kernel Library Version 2024.2-Product"
    configuration = types.SimpleNamespace(show=lambda: text)
    mapped(monkeypatch, torch=types.SimpleNamespace(__config__=configuration))
    assert libraries() == {"MKL": "2024.2"}


def test_a_cache_is_warm_where_something_lies_in_it(tmp_path, monkeypatch):
    (tmp_path / "triton" / "kernel").mkdir(parents=True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "missing"))
    assert identity.caches() == {"Triton": "warm", "Inductor": "cold"}
    assert Path(tmp_path / "missing").exists() is False
