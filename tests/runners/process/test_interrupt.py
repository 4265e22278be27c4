from __future__ import annotations

import os
import signal

import pytest

from runners.process.interrupt import SIGNALS, Interrupted, interruptible


def send_self(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_raises_once_and_the_second_only_hurries(number: int) -> None:
    with interruptible() as interrupts:
        with pytest.raises(Interrupted) as raised:
            send_self(number)
        assert raised.value.number == number
        assert not interrupts.hurry()
        send_self(signal.SIGINT)
        assert interrupts.hurry()
        send_self(signal.SIGTERM)


def test_no_library_can_swallow_it_as_an_exception() -> None:
    assert not issubclass(Interrupted, Exception)


def test_signal_during_a_held_back_block_waits_for_its_end() -> None:
    done = []
    with interruptible() as interrupts:
        with pytest.raises(Interrupted), interrupts.held_back():
            send_self(signal.SIGINT)
            with interrupts.held_back():
                done.append("inner")
            done.append("outer")
        assert done == ["inner", "outer"]
        with interrupts.held_back():
            done.append("teardown")
    assert done[-1] == "teardown"


def test_failure_inside_a_held_back_block_does_not_lose_the_signal() -> None:
    with interruptible() as interrupts, pytest.raises(Interrupted) as raised, interrupts.held_back():
        send_self(signal.SIGTERM)
        raise OSError("disk full")
    assert isinstance(raised.value.__context__, OSError)


def test_second_signal_during_teardown_asks_to_hurry_without_raising() -> None:
    with interruptible() as interrupts:
        with pytest.raises(Interrupted):
            send_self(signal.SIGINT)
        with interrupts.held_back():
            send_self(signal.SIGINT)
            assert interrupts.hurry()


def test_previous_handlers_come_back_and_ignored_signals_stay_ignored() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            send_self(signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP] or signal.SIG_DFL)
    assert {number: signal.getsignal(number) for number in SIGNALS} == before
