"""What a run's log keeps, in plain Python."""

from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.engine.output_capture import capture_output, install_capture, without_capture
from kilonova.engine.run_log import RunLogEntries, format_error
from kilonova.errors import TaskFailed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=60)), st.integers(100, 2000))
def test_a_long_log_keeps_its_beginning_and_its_end(said: list[str], limit: int) -> None:
    log = RunLogEntries(limit)
    for number, text in enumerate(said):
        log.add(NOON, f"step{number}", text)
    lines = log.text().splitlines()
    whole = [f"2026-01-01T12:00:00.000Z step{number}: {text}" for number, text in enumerate(said)]
    gaps = [place for place, line in enumerate(lines) if line.startswith("… ")]
    assert len(log.text()) <= limit + 200
    if gaps:
        [gap] = gaps
        assert lines[:gap] == whole[:gap]
        assert lines[gap + 1 :] == whole[gap + 1 - len(lines) :]
        assert lines[gap] == f"… {len(whole) - len(lines) + 1:,} entries are left out …"
    else:
        assert lines == whole


def test_a_long_entry_is_cut_in_the_middle() -> None:
    log = RunLogEntries()
    log.add(NOON, "step", "a" * 20_000 + "\n" + "z" * 20_000, "stdout")
    text = log.text()
    assert len(text) < 20_000
    assert "characters are left out" in text
    assert text.endswith("zz\n")


def written(*texts: str) -> list[str]:
    """The lines that are heard of what is written to the standard output."""
    heard: list[str] = []
    with install_capture(), capture_output(lambda _, text: heard.append(text)):
        for text in texts:
            sys.stdout.write(text)
    return heard


@given(st.lists(st.text("ab\n", max_size=5)))
def test_what_is_written_in_pieces_is_heard_in_lines(texts: list[str]) -> None:
    *lines, rest = "".join(texts).split("\n")
    assert written(*texts) == lines + [rest] * bool(rest)


def test_of_a_progress_bar_the_end_is_heard() -> None:
    assert written(*(f"\r{number}%" for number in range(100_000))) == ["99999%"]
    assert written(*(f"{number}%\r" for number in range(100_000))) == ["99999%"]
    assert written("1%\r", "2%\r", "done\n") == ["done"]


def test_a_line_that_does_not_end_is_heard_in_parts() -> None:
    heard = written(*("x" * 10 for _ in range(200_000)))
    assert "".join(heard) == "x" * 2_000_000
    assert 100 < len(heard) < 200


def test_the_error_of_a_task_has_the_frames_of_its_code_only() -> None:
    def price() -> None:
        raise ValueError("no price")

    scope = {"__name__": "kilonova.engine.invocation", "price": price}
    exec("def invoke():\n    price()", scope)
    try:
        try:
            scope["invoke"]()  # type: ignore[operator]
        except ValueError as error:
            scope = {"__name__": "kilonova.engine.invocation"}
            raise TaskFailed("it raised", task="best") from error
    except TaskFailed as failed:
        failed.__cause__ = failed.__cause__.with_traceback(failed.__cause__.__traceback__.tb_next)  # type: ignore[union-attr]
        text = format_error(failed)
    assert text.startswith(f"it raised. {TaskFailed.remedy}. [task best]\nTraceback")
    assert text.endswith("ValueError: no price\n")
    assert "in price" in text
    assert "in invoke" not in text


class Heard(list[tuple[str, str]]):
    """What was heard: by what, and the words."""

    def __call__(self, source: str, text: str) -> None:
        self.append((source, text))


def test_what_a_thread_says_is_heard_by_those_for_whom_it_works() -> None:
    def speak(name: str) -> Heard:
        heard = Heard()
        with capture_output(heard):
            for number in range(50):
                barrier.wait()
                print(name, end=" ")
                print(number)
                logging.getLogger(name).warning("%s", number)
        return heard

    barrier = threading.Barrier(3)
    with install_capture(), ThreadPoolExecutor(3) as pool:
        for name, heard in zip("abc", pool.map(speak, "abc"), strict=True):
            expected = [[("stdout", f"{name} {n}"), (f"WARNING {name}", str(n))] for n in range(50)]
            assert heard == [item for pair in expected for item in pair]


def test_captured_output_also_reaches_its_original_destination(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr, list(logging.getLogger().handlers), logging.getLogger().level
    heard, inner = Heard(), Heard()
    with install_capture(), install_capture(), capture_output(heard):
        print("one\rtwo")
        print("three", file=sys.stderr)
        with capture_output(inner):
            print("inside", end="")
        with without_capture():
            print("aside")
    assert before == (sys.stdout, sys.stderr, logging.getLogger().handlers, logging.getLogger().level)
    assert capsys.readouterr().out == "one\rtwo\ninsideaside\n"
    assert heard[:2] == [("stdout", "two"), ("stderr", "three")]
    assert inner == [("stdout", "inside")]


def test_a_thread_of_a_task_is_heard_where_it_takes_the_context_along() -> None:
    heard = Heard()
    with install_capture(), capture_output(heard):
        for target, words in ((print, ("lost",)), (copy_context().run, (print, "kept"))):
            thread = threading.Thread(target=target, args=words)
            thread.start()
            thread.join()
    assert heard == [("stdout", "kept")]


def test_without_configured_logging_messages_from_info_on_are_captured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    heard = Heard()
    with install_capture(), capture_output(heard):
        logging.getLogger("shop").info("fine")
        logging.getLogger("shop").warning("late")
        logging.getLogger("py4j.clientserver").warning("not for you")
    assert heard == [("INFO shop", "fine"), ("WARNING shop", "late")]
    assert capsys.readouterr().err == "late\n"
    assert root.level == logging.WARNING
    assert root.handlers == []
