# SPDX-License-Identifier: BSD-3-Clause
"""callbacks_test.py — what a context calls back: log and progress."""

import gc
import json
import logging
import threading
import weakref

import fa3
import numpy as np
import pytest

X = np.ones((2, 300, 4, 32), np.float32)
WANT = fa3.attention(X, X, X)


def test_progress_goes_to_the_total():
    seen = []
    context = fa3.Context(progress=lambda *of: seen.append(of))
    assert (fa3.attention(X, X, X, context=context) == WANT).all()
    assert seen and len({total for _, total in seen}) == 1
    done = [d for d, _ in seen]
    assert done == sorted(done) and done[-1] == seen[-1][1] > 0
    count = len(seen)
    fa3.Plan(fa3.attention, X, X, X, context=context).run(X, X, X)
    assert len(seen) > count


class Stop(Exception):
    pass


def test_an_exception_stops_the_run():
    armed = True

    def progress(done, total):
        if armed:
            raise Stop(f"at {done} of {total}")

    context = fa3.Context(progress=progress)
    for _ in range(2):
        with pytest.raises(Stop, match=r"at \d+ of \d+"):
            fa3.attention(X, X, X, context=context)
    armed = False
    assert (fa3.attention(X, X, X, context=context) == WANT).all()


def test_runs_at_once_raise_their_own():
    def progress(done, total):
        raise Stop

    context, caught = fa3.Context(progress=progress), []

    def work():
        for _ in range(10):
            try:
                fa3.attention(X, X, X, context=context)
            except Stop:
                caught.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(caught) == 40


def test_runs_at_once_raise_what_was_raised_in_them():
    """Runs are known by their totals."""

    def progress(done, total):
        if armed:
            raise Stop(total)
        totals.append(total)

    armed, totals, wrong = False, [], []
    context = fa3.Context(progress=progress)
    inputs = [X[:, :, :heads] for heads in (1, 2, 3, 4)]
    of = []
    for x in inputs:
        totals.clear()
        fa3.attention(x, x, x, context=context)
        of.append(totals[-1])
    assert len(set(of)) == len(of)
    armed = True

    def work(x, total):
        for _ in range(50):
            try:
                fa3.attention(x, x, x, context=context)
            except Stop as stop:
                if stop.args != (total,):
                    wrong.append((stop.args, total))

    threads = [threading.Thread(target=work, args=each) for each in zip(inputs, of, strict=True)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong


def simulator(**options):
    try:
        return fa3.Context(backend="sim", **options)
    except NotImplementedError as error:
        pytest.skip(str(error))


@pytest.fixture
def old_tuning(monkeypatch, tmp_path):
    """What a context warns of when it is made."""
    path = tmp_path / "tuning.json"
    old = {"fa3_tuning": 1, "fa3": "0.0.1", "gpu": "NVIDIA H200", "problems": []}
    path.write_text(json.dumps(old))
    monkeypatch.setenv("FA3_TUNING", str(path))


def test_log_is_that_of_logging(old_tuning, caplog):
    simulator(log=logging.getLogger("fa3").log)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("fa3", logging.WARNING)
    assert "is of fa3 0.0.1" in record.getMessage()


def test_log_level(old_tuning):
    lines = []
    simulator(log=lambda *line: lines.append(line), log_level=logging.ERROR)
    assert lines == []
    simulator(log=lambda *line: lines.append(line), log_level=logging.DEBUG)
    assert {logging.WARNING, logging.INFO} <= {level for level, _ in lines}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_log_that_raises_disturbs_nothing(old_tuning):
    def log(level, message):
        raise Stop

    assert simulator(log=log).info()["backend"] == "sim"


def test_refuses_what_cannot_be_called():
    with pytest.raises(TypeError):
        fa3.Context(log="a file")
    with pytest.raises(TypeError):
        fa3.Context(progress=1)


def test_a_cycle_is_collected():
    class Owner:
        pass

    owner = Owner()
    owner.context = fa3.Context(progress=lambda done, total, owner=owner: None)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_cycle_through_a_plan_is_collected():
    class Owner:
        pass

    owner = Owner()
    context = fa3.Context(progress=lambda done, total, owner=owner: None)
    owner.plan = fa3.Plan(fa3.attention, X, X, X, context=context)
    gone = weakref.ref(owner)
    del owner, context
    gc.collect()
    assert gone() is None
