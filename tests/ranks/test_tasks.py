"""Rank functions by file and name: what is found again is the very function, and what cannot be found is refused."""

import functools
import hashlib
import importlib.util
import socket
import sys

import pytest

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks.tasks import FunctionRef, load, reference

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


FUNCTIONS = """
import functools
def plain(rank): return rank
def wrapping(fn): return functools.wraps(fn)(lambda rank: fn(rank))
@wrapping
def decorated(rank): return rank
shadowed = plain
def again(rank): return rank
hidden, again = again, None
class Holder:
    @staticmethod
    def static(rank): return rank
    def method(self, rank): return rank
    @classmethod
    def of_class(cls, rank): return rank
    def __call__(self, rank): return rank
async def coroutine(rank): return rank
async def async_generator(rank): yield rank
def generator(rank): yield rank
def closing(held):
    def inner(rank): return rank + held
    return inner
def making():
    def inner(rank): return rank
    return inner
"""


def refused(call, *arguments):
    with pytest.raises(BadInput) as raised:
        call(*arguments)
    return str(raised.value)


def test_a_function_of_a_module_is_found_again(write):
    module = imported(write(FUNCTIONS, name="plain"))
    for fn in (module.plain, module.decorated, module.shadowed, module.Holder.static):
        assert load(reference(fn))(3) == 3
    # By the file and the digest of its text.
    ref = write()
    assert reference(imported(ref).twice) == ref


def test_what_no_other_process_can_find_is_refused_with_the_reason(write, tmp_path, monkeypatch):
    own = imported(write(FUNCTIONS, module="functions_of_a_test"))
    typed = type(sys)("typed_in_by_hand")
    exec("def fn(rank): return rank", vars(typed))
    monkeypatch.setitem(sys.modules, "typed_in_by_hand", typed)
    gone = imported(write(file="gone.py")).twice
    (tmp_path / "gone.py").unlink()
    for fn, why in (
        (lambda rank: rank, "a lambda"),
        (own.closing(3), "holds held of the function around it"),
        (own.making(), "defined inside another function"),
        (functools.partial(own.plain, 1), "is a partial"),
        (own.Holder().method, "method bound to an object"),
        (own.Holder.of_class, "method bound to an object"),
        (own.Holder(), "is a Holder"),
        (own.Holder, "is a type"),
        (len, "is a builtin"),
        (3, "is a int"),
        (own.coroutine, "is async"),
        (own.async_generator, "is async"),
        (own.generator, "is a generator"),
        (own.hidden, "is not the function that was given"),
        (typed.fn, "typed_in_by_hand has no file"),
        (gone, "gone.py cannot be read"),
    ):
        assert why in refused(reference, fn), why


def test_a_file_that_is_not_the_controllers_is_refused_by_the_name_of_the_host(write, tmp_path):
    ref, host = write(), socket.gethostname()
    told = refused(load, FunctionRef(ref.file, "0" * 64, ref.module, ref.name))
    assert f"on {host} is another version than the controller's (SHA-256 {ref.sha256[:12]}…, expected 000000" in told
    told = refused(load, FunctionRef(str(tmp_path / "none.py"), "0" * 64, "none", "fn"))
    assert f"none.py cannot be read on {host}: No such file" in told
    assert "has no function thrice" in refused(load, write(name="thrice"))


def test_a_module_is_loaded_once_and_anew_when_its_file_has_changed(write, tmp_path):
    counting = "\n\nseen = []\n\n\ndef count(rank):\n    seen.append(rank)\n    return len(seen)\n"
    ref = write(TEXT + counting, name="count")
    assert [load(ref)(0), load(ref)(0)] == [1, 2]
    before = load(write())
    after = load(write(TEXT.replace("2 * rank", "20 * rank")))
    # Also while its module is known.
    text = TEXT.replace("2 * rank", "200 * rank")
    (tmp_path / "rank_module.py").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    changed = load(FunctionRef(str(tmp_path / "rank_module.py"), digest, "rank_module_of_a_test", "twice"))
    assert [before(1), after(1), changed(1)] == [2, 20, 200]


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
