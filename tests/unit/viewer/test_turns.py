"""Whoever waits gets a turn: the hurried before the patient, each in the order of arrival."""

import threading
import time

import pytest

from nerf.viewer.turns import Turns

PATIENCE = 120  # seconds until a condition counts as never met


def test_the_hurried_come_first_and_nobody_overtakes_his_like() -> None:
    turns, order = Turns(), []

    def wait(name: str, patient: bool) -> None:
        with turns.take(patient):
            order.append(name)

    with turns.take(patient=False):
        threads = []
        for number, (name, patient) in enumerate((("video", True), ("rest", True), ("drag", False), ("turn", False))):
            threads.append(threading.Thread(target=wait, args=(name, patient)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                time.sleep(0)
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["drag", "turn", "video", "rest"]


def test_an_error_gives_the_turn_back() -> None:
    turns = Turns()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turns.take(patient=True):
            _ = 1 // 0
