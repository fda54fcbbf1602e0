"""What stands below a declaration in its module, or is imported by it as it runs, belongs to what it does."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilonova.declare.load import load
from kilonova.declare.workflow import Declared
from kilonova.errors import DeclarationError
from kilonova.model.encoding import Custom

MODULE = """
import kilonova as kn

wf = kn.Workflow("w")
part = kn.Workflowette("part")
part.channel("a", "id int")

@part.task(schema="id int")
def bound(a: kn.New) -> kn.Delta:
    return helper(a)

class Merge:
    def merge(self, base, delta):
        return helper(delta)
    def chain(self, first, second):
        return helper(second)

wf.channel("c", "id int")
wf.channel("m", "id int", key="id", encoding=kn.custom(Merge))
wf.bind("b", part, {"a": "c"})

@wf.task(schema="id int")
def alone(c: kn.New) -> kn.Delta:
    from beside import more
    return more(helper(c))

def helper(number):
    return number + 10
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "beside.py").write_text("def more(number):\n    return number + 100\n")
    file = tmp_path / "below.py"
    file.write_text(MODULE)
    yield file
    for name in ("beside", "below"):
        sys.modules.pop(name, None)


def loaded(file: Path) -> Declared:
    for name in ("beside", "below"):
        sys.modules.pop(name, None)
    [workflow] = load(file)
    return workflow.declared()


def test_functions_are_kept_with_what_stands_below_them(file: Path) -> None:
    declared = loaded(file)
    tasks = {task.name: task.variants[0] for task in declared.workflow.tasks}
    assert pickle.loads(tasks["b__bound"].logic.pickled)(1) == 11
    assert pickle.loads(tasks["alone"].logic.pickled)(1) == 111
    [channel] = (each for each in declared.workflow.channels if each.name == "m")
    assert isinstance(channel.encoding, Custom)
    functions = pickle.loads(declared.functions[channel.encoding.function].pickled)
    assert functions().merge(None, 1) == 11


@pytest.mark.parametrize("edited", ["below.py", "beside.py"])
def test_a_change_of_what_stands_below_counts(file: Path, edited: str) -> None:
    before = loaded(file)
    place = file.with_name(edited)
    place.write_text(place.read_text().replace("number + 10", "number - 10"))
    after = loaded(file)

    def prints(declared: Declared) -> dict[str, str]:
        found = {task.name: task.variants[0].fingerprint for task in declared.workflow.tasks}
        return found | {name: "" for name in declared.functions}

    changed = prints(before).items() ^ prints(after).items()
    alone = {"alone"} == {name for name, _ in changed}
    assert alone if edited == "beside.py" else len(changed) == 6


def test_what_cannot_be_kept_is_refused_where_it_is_loaded(file: Path) -> None:
    file.write_text(
        MODULE.replace("return number + 10", "return lock") + "\nimport threading\nlock = threading.Lock()\n"
    )
    with pytest.raises(DeclarationError, match="cannot be pickled by value") as raised:
        load(file)
    assert raised.value.path == str(file)
    assert raised.value.task == "bound"
