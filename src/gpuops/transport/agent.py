"""Transport that sends all questions to ``node/agent.py`` in one round trip, over any byte stream."""

from __future__ import annotations

import base64
import contextlib
import importlib.resources
import logging
import re
import secrets
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from gpuops.errors import BecomeError, InputError, LostError, NodeError
from gpuops.inventory.bmc import Bmc
from gpuops.secret import Secret
from gpuops.shell import Command, Completed, Files, NodeQuestion, Question, Resources
from gpuops.transport import sh_fallback
from gpuops.transport.answer import MOST_BYTES, read_answer
from gpuops.transport.bmc import BmcReading
from gpuops.transport.marked import MarkedStream
from gpuops.transport.stream import OpenStream
from gpuops.transport.worker import Worker, receive

_log = logging.getLogger(__name__)
AGENT = ("files", "children", "agent")
"""Scripts of ``node/`` that make up the agent."""
OUTPUT_CAP_BYTES = 8 * 1024 * 1024
_START_SECONDS = 30.0
_SLACK_SECONDS = 10.0
_INTERPRETER = re.compile(r"[A-Za-z0-9_./+-]+\Z")
_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
# write a new file in the same directory (-C: never through an existing link) and sync it before it is renamed;
# what a killed program left is removed
_PUT = """\
for old in "$1".gpuops-[0-9]*; do [ -e "/proc/${old##*-}/stat" ] || rm -f -- "$old"; done
umask 077; set -C; t="$1.gpuops-$$"; : >"$t" || exit 1
trap 'rm -f "$t"' EXIT; trap 'exit 143' HUP INT TERM; cat >|"$t" && chmod "$2" "$t" && sync "$t" && mv -fT "$t" "$1"
"""


@lru_cache
def _program(*scripts: str) -> bytes:
    """Return scripts of ``node/`` as one program for `start_line`; the rest of stdin belongs to that program."""
    folder = importlib.resources.files("gpuops").joinpath("node")
    packed = zlib.compress(b"\n".join(folder.joinpath(f"{name}.py").read_bytes() for name in scripts), 9)
    return b"%d\n" % len(packed) + packed


def start_line(mark: str, python: str | None, *, first: str = "") -> str:
    """Return a command line that starts a program under any login shell (sh, csh, fish: single quotes, no ``!``).

    ``first`` is an sh command that runs before it.
    """
    if python and not _INTERPRETER.match(python):
        raise InputError(f'ansible_python_interpreter "{python}" is not a plain path')
    code = "import sys,zlib;MARK=sys.argv[1];i=sys.stdin.buffer;exec(zlib.decompress(i.read(int(i.readline()))))"
    names = " ".join(filter(None, (python, "python3", "/usr/libexec/platform-python")))
    script = (
        f"{first}cd /;LC_ALL=C;PATH=$PATH:{_PATH};export LC_ALL PATH;for p in {names};do "
        f'if command -v "$p" >/dev/null 2>&1;then exec "$p" -ISc "{code}" {mark};fi;done;echo {mark} none'
    )
    return f"exec /bin/sh -c '{script}'"


class AgentTransport:
    """Transport over ``open_stream``, a function that starts a command line on the node and returns its stream.

    The agent runs as long as the transport is open, so a second batch costs one write and one read. If the node has no
    usable Python, a plain sh script answers instead.
    """

    def __init__(
        self,
        node: str,
        open_stream: OpenStream,
        *,
        python: str | None = None,
        become_password: Secret | None = None,
    ) -> None:
        self.node = node
        self._open_stream = open_stream
        self._python = python
        self._password = become_password
        self._mark = f"gpuops-{secrets.token_hex(12)}"
        self._stream: MarkedStream | None = None
        self._streams: list[MarkedStream] = []
        self._lock = threading.Lock()
        self._has_python = True
        self._closed = False
        self.bmc: Bmc | None = None
        self._bmc_reading: BmcReading | None = None
        self.on_close: Callable[[AgentTransport], None] = _ignore

    @property
    def has_python(self) -> bool:
        """False if the node has been asked and has no usable Python, so that no script of gpuops can run there."""
        return self._has_python

    def limit_silence(self, seconds: float) -> None:
        """Ask to give the node up after ``seconds`` without a sign of life; transports that cannot, ignore it."""

    def run(self, command: Command) -> Completed:
        """Run one command and wait for it."""
        return self.batch([command])[0]

    def batch(self, questions: Sequence[Question]) -> list[Completed]:
        """Ask the node all questions in one round trip, and its BMC at the same time from here."""
        for question in questions:
            _log.debug("%s: asking %s", self.node, question)
        of_node = [question for question in questions if not isinstance(question, Resources)]
        if len(of_node) == len(questions):
            return self._ask_node(of_node)
        self._bmc_reading = reading = BmcReading(
            self.node, self.bmc, [q for q in questions if isinstance(q, Resources)]
        )
        try:
            answers = iter(self._ask_node(of_node) if of_node else ())
            from_bmc = iter(reading.answers())
        finally:
            reading.stop()
        if self._closed:
            raise LostError(self.node, "gpuops closed the connection")
        return [next(from_bmc if isinstance(question, Resources) else answers) for question in questions]

    def _ask_node(self, questions: Sequence[NodeQuestion]) -> list[Completed]:
        with self._lock:
            if self._has_python:
                answers = self._exchange(questions)
                if answers is not None:
                    return self._checked(answers)
                self._has_python = False
            try:
                self._stream = self._opened(sh_fallback.START_LINE)
                return sh_fallback.batch(self.node, self._stream.stream, questions)
            finally:
                self._drop()

    def put(self, text: bytes, path: str, mode: int) -> None:
        """Write a new file with the right mode from the first byte, then rename it to ``path``."""
        words = ("sh", "-c", _PUT, "sh", path, f"{mode:04o}")
        self._succeed(
            Command(words, timeout_seconds=60, stdin=text.decode("utf-8", "surrogateescape")), f"write {path}"
        )

    def get(self, path: str) -> bytes:
        """Return the content of ``path``."""
        answer = self._succeed(Command(("base64", "--", path), timeout_seconds=60), f"read {path}")
        return base64.b64decode(answer.out)

    def _succeed(self, command: Command, what: str) -> Completed:
        answer = self.run(command)
        if answer.timed_out or answer.truncated:
            raise NodeError(self.node, f"cannot {what}: it takes too long or the file is too large")
        if answer.exit != 0:
            raise NodeError(self.node, f"cannot {what}: {answer.last_line()}")
        return answer

    def start(self, *scripts: str) -> Worker:
        """Start scripts of ``node/`` as one program, on its own stream, which this transport closes with itself.

        The program runs like the agent, with the name ``MARK`` set, and prints ``MARK {"hello": …}`` when it is ready.
        """
        stream = self._opened(
            start_line(self._mark, self._python, first="exec 2>&1;")
        )  # so that its last line is an error
        _offer(stream, _program(*scripts))
        with self._within(_START_SECONDS):
            first = receive(stream, _START_SECONDS).get("hello")
        if not isinstance(first, dict):
            raise LostError(self.node, "the worker script did not say what it is; is something printing in its place?")
        return Worker(stream, first)

    def close(self) -> None:
        """Close the transport; a batch that waits in another thread raises `LostError`. Safe to call twice."""
        self._closed = True
        if self._bmc_reading is not None:
            self._bmc_reading.stop()
        self._drop()
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.close()
        self.on_close(self)

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            with contextlib.suppress(ValueError):  # it was not opened here, or another thread is closing
                self._streams.remove(stream)

    def _opened(self, line: str) -> MarkedStream:
        if self._closed:
            raise LostError(self.node, "gpuops closed the connection")
        stream = MarkedStream(self.node, self._open_stream(line), self._mark)
        self._streams.append(stream)
        if self._closed:  # in the meantime, by a thread that could not see this stream yet
            stream.close()
            raise LostError(self.node, "gpuops closed the connection")
        return stream

    def _exchange(self, questions: Sequence[NodeQuestion]) -> list[Completed] | None:
        """Send a request and return the answers, or None if no Python answered."""
        seconds = _longest(questions)
        password = self._password.reveal() if self._password else ""
        data = repr((seconds, password, [_asked(q) for q in questions])).encode()
        try:
            stream = self._sent(b"%d\n%b" % (len(data), data))
            return self._answers(stream, questions, seconds + _SLACK_SECONDS) if stream else None
        except LostError:
            self._drop()
            raise

    def _sent(self, request: bytes) -> MarkedStream | None:
        """Send the request, and before it the agent if none is running yet; return the agent's stream."""
        if self._stream is not None:
            self._stream.write(request)
            return self._stream
        self._stream = stream = self._opened(start_line(self._mark, self._python))
        _offer(stream, _program(*AGENT) + request)
        with self._within(_START_SECONDS):
            if stream.word(_START_SECONDS) == b"hello":
                return stream
        self._drop()
        return None

    def _answers(self, stream: MarkedStream, questions: Sequence[NodeQuestion], seconds: float) -> list[Completed]:
        """Return the answers; their length in bytes follows a mark that must arrive within ``seconds``."""
        with self._within(seconds):
            length = stream.word(seconds)
        if not re.fullmatch(rb"[1-9]\d{0,8}", length):
            raise LostError(self.node, "the connection broke in the middle of the answer, after 0 bytes")
        with self._within(_SLACK_SECONDS):
            return read_answer(self.node, questions, stream.some, int(length), _SLACK_SECONDS)

    @contextlib.contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise LostError(self.node, f"connected, but no answer within {seconds:g} s") from error

    def _checked(self, answers: list[Completed]) -> list[Completed]:
        refused = [answer for answer in answers if answer.state == "sudo-refused"]
        if refused:
            self._password = None  # never try it again: repeated failures can lock the account
            raise BecomeError(self.node, f"sudo rejected the password, tried once (for: {refused[0].question})")
        return answers


def _ignore(_transport: AgentTransport) -> None:
    """Do nothing: the default of `AgentTransport.on_close`."""


def _offer(stream: MarkedStream, program: bytes) -> None:
    """Send a program; ignore a closed stream, because a shell that finds no Python exits and reports that itself."""
    with contextlib.suppress(LostError):
        stream.write(program)


def _longest(questions: Sequence[NodeQuestion]) -> float:
    """Return the timeout of a batch: timeouts within a lane add up, others run in parallel, then sudo's one by one.

    Files are read together for half of their time at most, and only then each question apart.
    """
    lanes: dict[str, float] = {}
    as_root = 0.0
    for question in questions:
        lane = question.lane if isinstance(question, Command) else ""
        before = lanes.get(lane, 0.0)
        seconds = question.timeout_seconds * (1.5 if isinstance(question, Files) else 1.0)
        lanes[lane] = before + seconds if lane else max(before, seconds)
        if isinstance(question, Command) and question.become != "never":
            as_root += question.timeout_seconds
    return max(lanes.values(), default=0.0) + as_root + 2.0


def _asked(question: NodeQuestion) -> dict[str, Any]:
    """Return a question in the form that the agent reads."""
    common = {"seconds": question.timeout_seconds, "cap": OUTPUT_CAP_BYTES, "total": MOST_BYTES}
    if isinstance(question, Files):
        own: dict[str, Any] = {"globs": question.globs, "limit": question.limit_bytes}
        return {**common, **own, "words": [], "lane": "", "become": "never", "stdin": b""}
    return {
        **common,
        "words": [_encoded(word) for word in question.words],
        "root_words": [_encoded(word) for word in question.root_words or question.words],
        "lane": question.lane,
        "become": question.become,
        "stdin": _encoded(question.stdin),
    }


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
