"""The connection ``gpuops://`` of testinfra: its commands go through gpuops' transports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import testinfra.backend
from testinfra.backend.base import BaseBackend

from gpuops.errors import InputError, NodeError
from gpuops.shell import Command, Completed
from gpuops.testing import hostspec
from gpuops.testing.reach import Reach

if TYPE_CHECKING:
    from typing_extensions import Self

_ROOT = (None, "root")
_parse_hostspec = testinfra.backend.parse_hostspec


class AsUser(str):
    """Command line ``sudo …`` as testinfra writes it; ``inner`` is the command to run as ``user`` (None: root)."""

    __slots__ = ("inner", "user")
    inner: str
    user: str | None

    def __new__(cls, line: str, inner: str, user: str | None) -> Self:
        """Create the command line with its parts."""
        made = super().__new__(cls, line)
        made.inner, made.user = inner, user
        return made


class GpuopsBackend(BaseBackend):  # type: ignore[misc] # testinfra is not typed
    """Host of gpuops. A command that could not run raises `NodeError`: its test is then an error, and not a failure."""

    NAME = "gpuops"
    reach: ClassVar[Reach | None] = None
    """What leads to the hosts; testinfra makes backends by their import path, so it cannot be handed to each."""

    def __init__(
        self, name: str, ansible_inventory: str | None = None, timeout: str | None = None, **keywords: Any
    ) -> None:
        super().__init__(name, sudo=bool(keywords.get("sudo")), sudo_user=keywords.get("sudo_user"))
        self.inventory = ansible_inventory or ""
        self._encoding = "utf-8"
        self._seconds = _seconds(timeout)
        self._may: dict[Command, bool] = {}

    @classmethod
    def means(cls) -> Reach:
        """Return what leads to the hosts."""
        if cls.reach is None:
            raise InputError("gpuops:// works in pytest only; programs use gpuops.Cluster")
        return cls.reach

    @classmethod
    def get_hosts(cls, host: str, **keywords: Any) -> list[str]:
        """Return the names of the hosts that the pattern ``host`` selects."""
        return cls.means().names(host or "all", keywords.get("ansible_inventory") or "")

    def get_sudo_command(self, command: str, sudo_user: str | None) -> AsUser:
        """Return the command line with its parts, because gpuops has its own way to become root."""
        return AsUser(super().get_sudo_command(command, sudo_user), command, sudo_user)

    def run(self, command: str, *args: str, **_keywords: Any) -> Any:
        """Run a command line, and return testinfra's result; raise `NodeError` if it did not run to its end."""
        line: str = self.get_command(command, *args)
        answer = self._answer(self._as_user(line) if isinstance(line, AsUser) else _shell(line))
        return self.result(answer.exit, self.encode(line), answer.out, answer.err)

    def _as_user(self, line: AsUser) -> Command:
        """Return the question for a line under sudo, in the first way that sudo grants.

        Root is reached as in all of gpuops, with the password that it may know. Another user is reached directly, else
        by way of root. A refusal must not look like the answer of the command.
        """
        direct = "sudo -n -u %s /bin/sh -c %s"
        if line.user in _ROOT:
            ways = [(_root(":"), _root(line.inner))]
        else:
            first, then = (self.quote(direct, line.user, inner) for inner in (":", line.inner))
            ways = [(_shell(first), _shell(then)), (_root(first), _root(then))]
        for trial, question in ways:
            if trial not in self._may:
                self._may[trial] = self._answer(trial).exit == 0
            if self._may[trial]:
                return question
        raise NodeError(
            self.hostname, f"sudo does not let the login user run /bin/sh as {line.user or 'root'}", "become"
        )

    def _answer(self, question: Command) -> Completed:
        seconds = min(self._seconds or self.means().seconds, self.means().seconds)
        timed = Command(question.words, timeout_seconds=seconds, become=question.become)
        answer = self.means().ask(self.hostname, self.inventory, [timed])[0]
        if answer.timed_out:
            raise NodeError(self.hostname, f"{question.words[-1]} did not answer in {seconds:.0f} s", "timeout")
        if answer.truncated:
            raise NodeError(self.hostname, f"{question.words[-1]} printed too much, and its output was truncated")
        return answer


def _shell(line: str) -> Command:
    return Command(("/bin/sh", "-c", str(line)))


def _root(line: str) -> Command:
    return Command(("/bin/sh", "-c", str(line)), become="always")


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError as error:
        raise InputError(f'timeout={text}: expected seconds, such as "30"') from error


def register() -> None:
    """Teach testinfra the connection, and its host specification, which has keys that testinfra drops."""
    testinfra.backend.BACKENDS[GpuopsBackend.NAME] = f"{__name__}.{GpuopsBackend.__name__}"
    testinfra.backend.parse_hostspec = _parsed


def _parsed(spec: str) -> tuple[str, dict[str, Any]]:
    return hostspec.parsed(spec) if hostspec.is_ours(spec) else _parse_hostspec(spec)
