"""Names, versions and folders of loaded libraries, and what a comparison says of them."""

from dataclasses import replace

import pytest

from pytest_roofline.core.libraries import folders, split_file, versions
from pytest_roofline.stats.verdicts import changed_environment

WHEEL, SYSTEM = "nvidia/cublas/lib/libcublas.so.12", "/usr/lib/x86/libcublas.so.12.4.5"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (SYSTEM, ("libcublas", "12.4.5")),
        ("libcublasLt.so", ("libcublasLt", "")),
        ("torch.libs/libgomp-24e2ab19.so.1.0.0", ("libgomp", "1.0.0")),
        ("/opt/hook.so", ("hook", "")),
        ("/opt/libnccl.so.2 (deleted)", ("", "")),
        ("MKL", ("", "")),
    ],
)
def test_the_name_of_a_file_is_the_librarys_with_its_version(path, expected):
    assert split_file(path) == expected


def test_a_library_has_a_plain_name_a_version_and_a_folder():
    libraries = {SYSTEM: "12.4.5", "/opt/libkernels.so.3": "3", "MKL": "2024.2"}
    assert versions(libraries) == {"cuBLAS": "12.4.5", "libkernels": "3", "MKL": "2024.2"}
    expected = {"folder of cuBLAS": "/usr/lib/x86", "folder of libkernels": "/opt"}
    assert folders(libraries) == expected


def test_of_a_library_that_is_loaded_twice_both_copies_are_named():
    libraries = {SYSTEM: "12.4.5", WHEEL: "12.8.4"}
    assert versions(libraries) == {"cuBLAS": "12.4.5 and 12.8.4"}
    assert folders(libraries) == {"folder of cuBLAS": "/usr/lib/x86 and nvidia/cublas/lib"}


def test_a_library_from_another_folder_is_a_difference_of_its_own(make):
    def changed(before, after):
        old, new = (
            replace(make.environment(), libraries=libraries).everything()
            for libraries in (before, after)
        )
        return changed_environment(new, [old])

    moved = {"/opt/new/libcublas.so.12.4.5": "12.4.5"}
    assert changed({SYSTEM: "12.4.5"}, moved) == ["folder of cuBLAS /usr/lib/x86 → /opt/new"]
    newer = {"/usr/lib/x86/libcublas.so.12.8": "12.8"}
    assert changed({SYSTEM: "12.4.5"}, newer) == ["cuBLAS 12.4.5 → 12.8"]
    assert changed({SYSTEM: "12.4.5"}, {SYSTEM: "12.4.5"}) == []


def test_folders_of_libraries_stand_in_no_baseline(make):
    facts = replace(make.environment(), libraries={SYSTEM: "12.4.5"}).comparable()
    assert (facts["cuBLAS"], "folder of cuBLAS" in facts) == ("12.4.5", False)
