"""Rank functions by file and name: what is found again is the very function, and what cannot be found is refused."""

import functools
import hashlib
import importlib.util
import socket
import sys

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks.functions import FunctionRef, load, reference

TEXT = """
import dataclasses


@dataclasses.dataclass
class Row:
    x: int = 1


def twice(rank):
    return 2 * rank
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module and says how it is referred to; all modules of these names are forgotten afterwards."""

    def written(text=TEXT, file="rank_module.py", module="rank_module_of_a_test", name="twice"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return FunctionRef(str(path), hashlib.sha256(text.encode()).hexdigest(), module, name)

    kept = dict(sys.modules)
    yield written
    for name in set(sys.modules) - set(kept):
        del sys.modules[name]


def imported(ref):
    spec = importlib.util.spec_from_file_location(ref.module, ref.file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[ref.module] = module
    spec.loader.exec_module(module)
    return module


def plain(rank):
    return rank


def wrapping(fn):
    @functools.wraps(fn)
    def wrapped(rank):
        return fn(rank)

    return wrapped


@wrapping
def decorated(rank):
    return rank


shadowed = plain


def plain_again(rank):
    return rank


hidden, plain_again = plain_again, None


class Holder:
    """Functions that stand in a class."""

    @staticmethod
    def static(rank):
        return rank

    def method(self, rank):
        return rank

    @classmethod
    def of_class(cls, rank):
        return rank

    def __call__(self, rank):
        return rank


async def coroutine(rank):
    return rank


async def async_generator(rank):
    yield rank


def generator(rank):
    yield rank


def closure():
    held = 3

    def inner(rank):
        return rank + held

    return inner


def without_closure():
    def inner(rank):
        return rank

    return inner


@pytest.mark.parametrize("fn", [plain, decorated, shadowed, Holder.static])
def test_a_function_of_a_module_is_found_again(fn):
    assert load(reference(fn))(3) == 3


def test_a_reference_has_the_file_and_the_digest_of_its_text(write):
    ref = write()

    assert reference(imported(ref).twice) == ref


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        pytest.param(lambda rank: rank, "a lambda", id="lambda"),
        pytest.param(closure(), "holds held of the function around it", id="closure"),
        pytest.param(without_closure(), "defined inside another function", id="inner"),
        pytest.param(functools.partial(plain, 1), "is a partial", id="partial"),
        pytest.param(Holder().method, "method bound to an object", id="method"),
        pytest.param(Holder.of_class, "method bound to an object", id="class method"),
        pytest.param(Holder(), "is a Holder", id="object"),
        pytest.param(Holder, "is a type", id="class"),
        pytest.param(len, "is a builtin", id="builtin"),
        pytest.param(3, "is a int", id="number"),
        pytest.param(coroutine, "is async", id="coroutine"),
        pytest.param(async_generator, "is async", id="async generator"),
        pytest.param(hidden, "is not the function that was given", id="replaced"),
    ],
)
def test_what_no_other_process_can_find_is_refused_with_the_reason(fn, why):
    with pytest.raises(BadInput, match=why):
        reference(fn)


def test_a_generator_function_is_refused_since_calling_it_does_no_work():
    with pytest.raises(BadInput, match="generator"):
        reference(generator)


def test_a_function_without_a_file_is_refused(monkeypatch):
    module = type(sys)("typed_in_by_hand")
    exec("def fn(rank): return rank", vars(module))
    monkeypatch.setitem(sys.modules, "typed_in_by_hand", module)

    with pytest.raises(BadInput, match="typed_in_by_hand has no file"):
        reference(module.fn)


def test_a_function_whose_file_is_gone_is_refused(write, tmp_path):
    fn = imported(write()).twice
    (tmp_path / "rank_module.py").unlink()

    with pytest.raises(BadInput, match=r"rank_module\.py"):
        reference(fn)


def test_another_version_of_the_file_is_refused_by_the_name_of_the_host(write):
    ref = write()
    other = FunctionRef(ref.file, "0" * 64, ref.module, ref.name)

    with pytest.raises(BadInput, match=rf"on {socket.gethostname()} is another version .*{ref.sha256[:12]}.*000000"):
        load(other)


def test_a_missing_file_is_refused_by_the_name_of_the_host(tmp_path):
    ref = FunctionRef(str(tmp_path / "none.py"), "0" * 64, "none", "fn")

    with pytest.raises(BadInput, match=rf"none\.py cannot be read on {socket.gethostname()}: No such file"):
        load(ref)


def test_a_name_that_the_file_has_not_is_refused(write):
    with pytest.raises(BadInput, match=r"has no function thrice"):
        load(write(name="thrice"))


def test_a_module_is_loaded_once(write):
    ref = write(
        TEXT + "\n\nseen = []\n\n\ndef count(rank):\n    seen.append(rank)\n    return len(seen)\n", name="count"
    )

    assert [load(ref)(0), load(ref)(0)] == [1, 2]


def test_a_file_that_has_changed_is_loaded_anew(write):
    before = load(write())
    after = load(write(TEXT.replace("2 * rank", "20 * rank")))

    assert [before(1), after(1)] == [2, 20]


def test_a_file_that_has_changed_is_loaded_anew_while_its_module_is_known(write, tmp_path):
    before = load(write())
    text = TEXT.replace("2 * rank", "200 * rank")
    (tmp_path / "rank_module.py").write_text(text)
    changed = FunctionRef(
        str(tmp_path / "rank_module.py"), hashlib.sha256(text.encode()).hexdigest(), "rank_module_of_a_test", "twice"
    )

    assert [before(1), load(changed)(1)] == [2, 200]


def test_two_files_of_one_module_name_do_not_shadow_each_other(write):
    one, other = write(file="a/same.py"), write(TEXT.replace("2 *", "3 *"), file="b/same.py")

    assert [load(one)(1), load(other)(1), load(one)(1)] == [2, 3, 2]


def test_a_script_is_loaded_without_being_run_as_one(write, monkeypatch):
    guarded = TEXT + "\n\nif __name__ == '__main__':\n    raise SystemExit('the script was run')\n"
    main = sys.modules["__main__"]
    ref = write(guarded)
    monkeypatch.setitem(sys.modules, "__main__", main)

    assert load(FunctionRef(ref.file, ref.sha256, "__main__", "twice"))(2) == 4
    assert sys.modules["__main__"] is main


def test_a_module_that_fails_to_load_is_not_half_known(write):
    ref = write("import no_such_module_anywhere\n")
    for _ in range(2):
        with pytest.raises(ImportError, match="no_such_module_anywhere"):
            load(ref)
    assert ref.module not in sys.modules
