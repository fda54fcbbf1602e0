"""What is passed on of the output of a worker."""

from __future__ import annotations

import os
from pathlib import Path

from kilonova.scheduler.worker_output import OutputRelay


def test_of_much_output_the_beginning_is_passed_on_for_each_thing_that_is_done(tmp_path: Path) -> None:
    end, begin = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        relay = OutputRelay(os.fdopen(end, "rb", 0), log.fileno(), "the worker 7", limit=1000)
        for _ in range(5000):
            os.write(begin, b"x" * 100)
        os.close(begin)
        relay.thread.join()
        relay.renew()
    first, *others = (tmp_path / "log").read_text().splitlines()
    assert first == "x" * 1000
    assert others == [
        "… the worker 7 writes more than 1,000 bytes: left out",
        "… 499,000 bytes of the output of the worker 7 were left out",
    ]


def test_what_is_little_is_passed_on_whole(tmp_path: Path) -> None:
    end, begin = os.pipe()
    with (tmp_path / "log").open("wb") as log:
        relay = OutputRelay(os.fdopen(end, "rb", 0), log.fileno(), "the worker 7", limit=1000)
        os.write(begin, b"one\ntwo\n")
        os.close(begin)
        relay.thread.join()
        relay.renew()
    assert (tmp_path / "log").read_text() == "one\ntwo\n"
