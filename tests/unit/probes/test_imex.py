import json

import pytest

from gpuops.probes.nvidia.imex import ImexDomain, imex_channels, imex_domain, imex_state
from gpuops.probing import Unknown
from gpuops.shell import Completed


def told(probe, out, code=0, **more):
    return probe.read(Completed("n1", probe.question, code, out, **more))


def member(state, host, name="N/A"):
    return {"status": state, "host": host, "connections": {"0": {"host": host, "status": "INVALID"}}, "hostName": name}


DOWN = {
    "nodes": {"1": member("UNAVAILABLE", "10.0.0.2"), "0": member("READY", "10.0.0.1", "gpu-node-a")},
    "timestamp": "9/4/2026 00:00:00.000",
    "status": "DOWN",
}


@pytest.mark.parametrize("word", ["READY", "WAITING_FOR_PEERS", "UNAVAILABLE"])
def test_state_is_the_word_of_the_daemon_whatever_the_exit_status(word):
    assert told(imex_state, f"{word}\n") == told(imex_state, f"{word}\n", 1) == word


@pytest.mark.parametrize(
    ("out", "code"), [("", 0), ("", 1), ("", 127), ("READ", 0), ("Connection refused\n", 1), ("NOT READY", 0)]
)
def test_other_words_are_unknown(out, code):
    assert isinstance(told(imex_state, out, code), Unknown)


def test_nodes_of_a_domain_are_called_by_name_or_else_by_address():
    expected = ImexDomain("DOWN", {"10.0.0.2": "UNAVAILABLE", "gpu-node-a": "READY"})
    assert told(imex_domain, json.dumps(DOWN)) == expected


@pytest.mark.parametrize(
    "out",
    [
        *("", "[]", "null", '{"nodes": []}', '{"nodes": "oops", "status": "UP"}', '{"nodes": {}, "status": "UP"}'),
        *(json.dumps({**DOWN, "status": None}), json.dumps(DOWN)[:-30]),
    ],
)
def test_no_domain_is_unknown(out):
    assert isinstance(told(imex_domain, out), Unknown)


def test_programs_that_hang_or_are_missing_are_unknown():
    for probe in (imex_state, imex_domain):
        assert isinstance(told(probe, "", -9, timed_out=True), Unknown)
        assert isinstance(told(probe, "", 127), Unknown)


def test_channels_are_there_if_their_directory_is():
    assert told(imex_channels, "/sys/class\0\0/dev/nvidia-caps-imex-channels\0\0") is True
    assert told(imex_channels, "/sys/class\0\0") is False
    assert isinstance(told(imex_channels, ""), Unknown)
    assert all("channels/" not in glob for glob in imex_channels.question.globs), "a channel is a device: never opened"
