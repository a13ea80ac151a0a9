"""Answers to `gpuops.shell.Resources`: a host's BMC over Redfish, read from this machine and never changed."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.errors import BmcError
from gpuops.inventory.bmc import Bmc
from gpuops.secret import Secret
from gpuops.shell import Completed, Resources
from gpuops.transport.redfish_walk import read_paths

if TYPE_CHECKING:
    from gpuops.transport.redfish_https import Https

PASSWORD_VARIABLE = "GPUOPS_BMC_PASSWORD"  # noqa: S105 - the name of the variable
_LONGEST_PASSWORD = 4096
_SLACK_SECONDS = 1.0


class BmcReading:
    """One batch of questions to a BMC, asked in a thread of its own until `answers` collects them.

    The thread ends at the questions' deadline, however the BMC behaves, and when `stop` breaks its connection.
    """

    def __init__(self, node: str, bmc: Bmc | None, questions: Sequence[Resources]) -> None:
        self._node = node
        self._bmc = bmc
        self._questions = questions
        self._began = time.monotonic()
        self._answers: list[Completed] = []
        self._https: Https | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        if bmc is not None:
            self._thread.start()

    def answers(self) -> list[Completed]:
        """Return one answer per question, in order; none takes longer than its own timeout."""
        if self._bmc is None:
            return [Completed(self._node, q, 127, err="bmc_address is not set") for q in self._questions]
        self._thread.join(max(0.0, self._ends(len(self._questions)) + _SLACK_SECONDS - time.monotonic()))
        self.stop()
        answers = list(self._answers)
        return answers + [self._timed_out(question) for question in self._questions[len(answers) :]]

    def stop(self) -> None:
        """Break the connection to the BMC; safe to call twice, and from another thread."""
        self._stopped = True
        if self._https is not None:
            self._https.cut()

    def _ends(self, count: int) -> float:
        return self._began + sum(question.timeout_seconds for question in self._questions[:count])

    def _timed_out(self, question: Resources) -> Completed:
        return Completed(self._node, question, 1, timed_out=True, seconds=time.monotonic() - self._began)

    def _work(self) -> None:
        for number, question in enumerate(self._questions, start=1):
            answer = self._answered(question, self._ends(number))
            if self._stopped:
                return
            self._answers.append(answer)

    def _answered(self, question: Resources, ends: float) -> Completed:
        try:
            from gpuops.transport.redfish_https import Https  # noqa: PLC0415 - an extra, loaded on use
        except ImportError:
            return Completed(self._node, question, 1, err="gpuops needs redfish: pip install 'gpuops[redfish]'")
        began = time.monotonic()
        try:
            self._https = self._https or Https(*_credentials(self._bmc), ends)
            if self._stopped:  # in the meantime, by a thread that could not see the connection yet
                self._https.cut()
            out = json.dumps(read_paths(question.paths, self._https.get))
        except (BmcError, RecursionError) as error:
            return Completed(self._node, question, 1, err=str(error), seconds=time.monotonic() - began)
        except TimeoutError:
            return self._timed_out(question)
        return Completed(self._node, question, 0, out, seconds=time.monotonic() - began)


def _credentials(bmc: Bmc | None) -> tuple[Bmc, Secret]:
    if bmc is None or not bmc.user:
        raise BmcError("the inventory sets bmc_address but no bmc_user")
    if bmc.password is not None:
        return bmc, bmc.password
    if bmc.password_file:
        return bmc, _password_in(Path(bmc.password_file))
    password = os.environ.get(PASSWORD_VARIABLE, "")
    if not password:
        raise BmcError(f"no password: set bmc_password_file in the inventory, or {PASSWORD_VARIABLE}")
    return bmc, Secret(password)


def _password_in(path: Path) -> Secret:
    """Return the first line of a file that only its owner may read."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe must not block
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BmcError(f"bmc_password_file {path} is not a regular file")
            if status.st_mode & 0o077:
                raise BmcError(f"bmc_password_file {path}: others may use it; fix it with: chmod 600 {path}")
            line = file.readline(_LONGEST_PASSWORD)
    except OSError as error:
        raise BmcError(f"bmc_password_file {path} cannot be read: {error.strerror}") from error
    try:
        password = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""
    if not password:
        raise BmcError(f"bmc_password_file {path} has no password in its first line")
    return Secret(password)
