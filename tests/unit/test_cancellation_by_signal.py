"""Ctrl-C during an import is raised once the import is done."""

import importlib
import signal
import time

import pytest

from gpuops import cancellation as interrupt

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
MODULE = """
import signal, time
try:
    signal.raise_signal(signal.{signal})
    time.sleep(0.05)
except KeyboardInterrupt:
    lost = True
else:
    lost = False
"""


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in NUMBERS}
    interrupt.raise_on_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_module_that_would_lose_it_is_loaded_first(name, tmp_path, monkeypatch):
    (tmp_path / f"loses_{name}.py").write_text(MODULE.format(signal=name))
    monkeypatch.syspath_prepend(tmp_path)
    loaded = []

    def load():
        loaded.append(importlib.import_module(f"loses_{name}"))
        time.sleep(5)

    with pytest.raises(KeyboardInterrupt):
        load()
    assert not loaded[0].lost


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_it_is_raised_at_once_elsewhere_and_not_at_the_end(name):
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.Signals[name])
    interrupt.ignore_signals()
    signal.raise_signal(signal.Signals[name])
