import itertools
import struct
import sys
import threading
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.errors import LostError, NodeError
from gpuops.shell import Command, Completed, Files
from gpuops.transport import agent
from gpuops.transport import answer as answer_module

ECHO = Command(("echo", "hi"))
HELLO = b"\nMARK hello\n"
PART = b"0 0.001 0 0 - 3 0\nhi\n"


def framed(body):
    return b"\nMARK %d\n" % len(body) + body


ANSWER = framed(zlib.compress(PART))


def test_question_and_answer_take_one_round_trip(scripted):
    node = scripted([HELLO + ANSWER])
    assert node.run(ECHO) == Completed("n1", ECHO, 0, "hi\n", seconds=0.001)
    assert len(node.streams) == 1
    assert b"b'echo'" in node.streams[0].written


@pytest.mark.parametrize(
    "noise",
    [
        b"Welcome to n1\r\n",
        b"\x00\xff\xfe\x1b[31mMOTD" * 1000,
        b"MARK",
        b"exec /bin/sh -c 'echo MARK none'\n",
        b"\xe2\x28",
        b"gpuops-000000000000000000000000 77\n",
    ],
)
def test_whatever_a_login_shell_says_first_is_skipped(scripted, noise):
    assert scripted([noise, HELLO, ANSWER]).run(ECHO).out == "hi\n"
    assert scripted([noise + HELLO + ANSWER]).run(ECHO).out == "hi\n"


@pytest.mark.parametrize("cut", [1, 6, 20, 40, 60])
def test_an_answer_may_come_in_pieces(shell_node, cut):
    node = shell_node()
    start = node._open_stream

    def in_pieces(line):
        stream = start(line)
        read, rest = stream.read, bytearray()

        def piece(seconds):
            if not rest:
                rest.extend(read(seconds))
            taken = bytes(rest[:cut])
            del rest[:cut]
            return taken

        stream.read = piece
        return stream

    node._open_stream = in_pieces
    assert node.run(ECHO).out == "hi\n"


def test_an_endless_noise_is_not_waited_for_and_runs_nothing_twice(scripted):
    node = scripted([b"y\n" * 300_000] * 9, [])
    with pytest.raises(LostError, match="login shell prints more than 1 MiB"):
        node.run(ECHO)
    assert len(node.streams) == 1


@pytest.mark.parametrize("answer", [b"", ANSWER[:20], ANSWER[:-1], b"\nMARK 5\n"])
def test_an_answer_that_is_cut_is_lost_and_nothing_runs_twice(scripted, answer):
    node = scripted([HELLO, answer], [])
    with pytest.raises(LostError, match="in the middle of the answer"):
        node.run(ECHO)
    assert len(node.streams) == 1
    assert node.streams[0].closed


def test_a_kept_agent_that_dies_is_lost_and_nothing_runs_twice(scripted):
    node = scripted([HELLO, ANSWER, ANSWER], [])
    node.run(ECHO)
    node.run(ECHO)
    with pytest.raises(LostError):
        node.run(ECHO)
    assert len(node.streams) == 1


def test_silence_before_and_after_the_hello_is_lost(scripted):
    with pytest.raises(LostError, match="no answer within 30 s"):
        scripted([b"noise", None]).run(ECHO)
    with pytest.raises(LostError, match=r"no answer within 22 s"):
        scripted([HELLO, None]).run(ECHO)


def test_a_node_that_dribbles_does_not_put_its_deadline_off(scripted, monkeypatch):
    node = scripted([HELLO] + [b"."] * 1000)
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    with pytest.raises(LostError, match="no answer within 22 s"):
        node.run(ECHO)
    assert len(node.streams[0].chunks) > 900


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib at all",
        zlib.compress(b""),
        zlib.compress(b"no newline"),
        zlib.compress(b"0 0.1 0 0 -\n"),
        zlib.compress(b"x 0.1 0 0 - 0 0\n"),
        zlib.compress(b"0 0.1 0 0 - 300 0\nhi\n"),
        zlib.compress(PART + b"more"),
        zlib.compress(PART)[:-4],
    ],
)
def test_a_damaged_answer_is_lost(scripted, body):
    with pytest.raises(LostError, match="malformed"):
        scripted([HELLO, framed(body)]).run(ECHO)


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([HELLO, ANSWER, b"MARK", b"\n", None])), max_size=6))
def test_no_answer_raises_anything_but_a_nodes_error(scripted, chunks):
    node = scripted(chunks, [None])
    try:
        out = node.run(ECHO).out
    except NodeError:
        out = "hi\n"
    assert out == "hi\n"


def test_answer_that_announces_too_much_is_refused_before_it_is_read(scripted):
    node = scripted([HELLO, b"\nMARK 260000000\n", *[b"\0" * 65536] * 9])
    with pytest.raises(LostError, match=r"the answer is longer than 12 MiB$"):
        node.run(ECHO)
    assert len(node.streams[0].chunks) == 9


def test_answer_that_unpacks_to_too_much_is_refused(scripted):
    bomb = zlib.compress(b"0 0.1 0 0 - 900000000 0\n" + b"\0" * 100_000_000)
    with pytest.raises(LostError, match="longer than 12 MiB when it is unpacked"):
        scripted([HELLO, framed(bomb)]).run(ECHO)


def test_answer_that_drips_is_given_up(scripted, monkeypatch):
    seconds = itertools.count()
    node = scripted([HELLO, b"\nMARK 4000\n", *[b"x"] * 4000])
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(answer_module, "zlib", SlowZlib)
    with pytest.raises(LostError, match="too slowly"):
        node.run(ECHO)
    assert len(node.streams[0].chunks) > 3000


class SlowZlib:
    """A zlib that swallows every byte and never gives one."""

    error = zlib.error
    eof, unused_data, unconsumed_tail = False, b"", b""

    @classmethod
    def decompressobj(cls):
        return cls()

    def decompress(self, _data, _most):
        return b""


@pytest.mark.parametrize(
    ("text", "got"),
    [("a" * 5_000_000 + "\u2192" + "b" * 3_000_000, "?"), ("a" * 5_000_000 + "\U0001f4a3" + "b" * 3_000_000, "?")],
)
def test_wide_character_does_not_multiply_the_memory_of_a_large_output(scripted, text, got):
    data = text.encode()
    body = zlib.compress(b"0 0.1 0 0 - %d 0\n" % len(data) + data, 1)
    completed = scripted([HELLO, framed(body)]).run(ECHO)
    assert completed.out == text[:5_000_000] + got + text[5_000_001:]
    assert not completed.truncated


def test_output_that_starts_wide_is_cut_and_that_is_reported(scripted):
    data = ("\U0001f4a3" + "a" * 6_000_000).encode()
    completed = scripted([HELLO, framed(zlib.compress(b"0 0.1 0 0 - %d 0\n" % len(data) + data, 1))]).run(ECHO)
    assert completed.truncated
    assert sys.getsizeof(completed.out) <= 12 << 20


def test_an_announced_length_beyond_measure_is_not_read(scripted):
    node = scripted([HELLO, b"\nMARK 999999999\n", *[b"x" * 60_000] * 100])
    with pytest.raises(LostError):
        node.run(ECHO)
    assert len(node.streams[0].chunks) > 90


@pytest.mark.parametrize(
    ("questions", "seconds"),
    [
        ([], 2),
        ([Files(("/a",), timeout_seconds=3), Command(("a",), timeout_seconds=7)], 9),
        ([Command((w,), timeout_seconds=60, lane="nvidia") for w in "abc"] + [ECHO], 182),
        ([Command((w,), timeout_seconds=20, become="if-refused") for w in "ab"], 62),
    ],
)
def test_a_batch_may_take_what_its_questions_may(questions, seconds):
    assert agent._longest(questions) == seconds


def test_a_stream_that_opens_while_we_hang_up_is_closed_again(scripted):
    node = scripted([HELLO, ANSWER])
    start = node._open_stream

    def slow_start(line):
        stream = start(line)
        node.close()
        return stream

    node._open_stream = slow_start
    with pytest.raises(LostError, match="gpuops closed the connection"):
        node.run(ECHO)
    assert node.streams[0].closed
    assert not node.streams[0].written


def test_two_threads_share_one_agent(shell_node):
    node, answers = shell_node(), []
    threads = [
        threading.Thread(target=lambda n=n: answers.append((n, node.run(Command(("echo", str(n)))).out)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == [(n, f"{n}\n") for n in range(8)]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
@pytest.mark.parametrize("name", ["plain", "a b'c\"$(id)`id`;*é", "-rf"])
def test_a_file_comes_back_as_it_was_put(shell_node, tmp_path, name, mode):
    node, path, data = shell_node(), f"{tmp_path}/{name}", bytes(range(256)) * 300
    node.put(data, path, mode)
    assert node.get(path) == data
    assert (tmp_path / name).stat().st_mode & 0o7777 == mode
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_file_is_replaced_whole_and_a_link_in_its_place_is_not_followed(shell_node, tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to("target")
    shell_node().put(b"new", f"{tmp_path}/link", 0o600)
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "new"


def test_a_file_has_its_mode_from_the_first_byte(shell_node, tmp_path):
    modes = set()
    done = threading.Event()

    def watch():
        while not done.is_set():
            for path in tmp_path.iterdir():
                try:
                    modes.add(path.stat().st_mode & 0o777)
                except OSError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    shell_node().put(b"x" * 5_000_000, f"{tmp_path}/secret", 0o600)
    time.sleep(0.05)
    done.set()
    watcher.join()
    assert modes == {0o600}


@pytest.mark.parametrize("path", ["/nonexistent/folder/file", "/proc/version"])
def test_what_cannot_be_written_is_the_nodes_error_and_leaves_nothing(shell_node, path):
    with pytest.raises(NodeError, match=f"n1: cannot write {path}: "):
        shell_node().put(b"x", path, 0o600)


def test_a_folder_is_not_written_into(shell_node, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(NodeError, match="cannot write"):
        shell_node().put(b"x", f"{tmp_path}/folder", 0o600)
    assert not list((tmp_path / "folder").iterdir())
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_what_cannot_be_read_is_the_nodes_error(shell_node):
    with pytest.raises(NodeError, match=r"n1: cannot read /nonexistent: .*No such file"):
        shell_node().get("/nonexistent")


def test_what_is_too_long_to_read_is_said(shell_node, tmp_path, monkeypatch):
    monkeypatch.setattr(agent, "OUTPUT_CAP_BYTES", 100_000)
    (tmp_path / "large").write_bytes(struct.pack("1000000x"))
    with pytest.raises(NodeError, match="takes too long or the file is too large"):
        shell_node().get(f"{tmp_path}/large")
