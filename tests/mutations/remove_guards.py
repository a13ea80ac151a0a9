"""Remove each guard in a copy of the tree and run its test, which must fail: ``remove_guards.py [NAME]...``.

A promise counts as proved only if its test notices that the guard is gone.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]


class Guard(NamedTuple):
    """Text in ``file`` that is replaced, and the test (as pytest's arguments) that must notice it."""

    file: str
    guard: str
    without: str
    test: tuple[str, ...]


GUARDS = {
    "ssh options beyond the allow list": Guard(
        "src/gpuops/inventory/ssh_args.py",
        "if option.lower() not in _ALLOWED:",
        "if not option:",
        ("tests/unit/inventory/test_variables.py", "-k", "allow_list"),
    ),
    "gpuops' own ssh options first": Guard(
        "src/gpuops/transport/openssh.py",
        '"NoHostAuthenticationForLocalhost no",',
        "",
        ("tests/unit/transport/test_openssh.py", "-k", "unsafe_options"),
    ),
    "project code that the group may write": Guard(
        "src/gpuops/content.py",
        "(stat.S_IWGRP | stat.S_IWOTH)",
        "stat.S_IWOTH",
        ("tests/unit/test_content.py", "-k", "others_may_write"),
    ),
    "ssh configurations that others may write": Guard(
        "src/gpuops/transport/settings.py",
        "    _refuse_foreign(path)\n",
        "",
        ("tests/unit/transport/test_settings.py", "-k", "others_may_write"),
    ),
    "masters end with their group": Guard(
        "src/gpuops/transport/connections.py",
        "        _end_all([self.masters], ends)\n",
        "",
        ("tests/unit/transport/test_openssh.py", "-k", "closing_a_group"),
    ),
    "resumed journals are verified": Guard(
        "src/gpuops/playbook/journal.py",
        "    verify(path)\n    return",
        "    return",
        ("tests/unit/playbook/test_damaged_journals.py", "-k", "edited"),
    ),
    "private modes whatever the umask": Guard(
        "src/gpuops/replacing.py",
        "        missing.chmod(0o700)",
        "        pass",
        ("tests/unit/test_private_files.py", "-k", "umask"),
    ),
    "saved facts in closed directories": Guard(
        "src/gpuops/report/output.py",
        "private_directory(folder, strict=True)",
        "private_directory(folder)",
        ("tests/unit/test_private_files.py", "-k", "others_may_enter"),
    ),
    "bounded decompression": Guard(
        "src/gpuops/transport/answer.py",
        "if self._count > MOST_BYTES + _STEP_BYTES:",
        "if False:",
        ("tests/unit/transport/test_agent_transport.py", "-k", "unpacks_to_too_much"),
    ),
    "bounded announcements": Guard(
        "src/gpuops/transport/answer.py",
        "if size > MOST_BYTES + _STEP_BYTES:",
        "if False:",
        ("tests/unit/transport/test_agent_transport.py", "-k", "announces_too_much"),
    ),
    "jobs end with a killed agent": Guard(
        "src/gpuops/node/agent.py",
        '        hand_over(WATCHER, b"+%d\\n" % os.getpid())\n',
        "",
        ("tests/unit/node/test_agent.py", "-k", "agent_is_killed"),
    ),
    "names of NICs": Guard(
        "src/gpuops/placement/shape.py",
        "if not _DEVICE_NAME.fullmatch(name):",
        "if not name:",
        ("tests/unit/test_placement.py", "-k", "no_device_has"),
    ),
}


def passes(guard: Guard, copy: pathlib.Path) -> bool:
    """Return whether the test of a guard passes in the copy."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *guard.test]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run(words, cwd=copy, env=environment, check=False, capture_output=True, timeout=300)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(guard.test)}: pytest ended with {done.returncode}: {done.stdout.decode()[-500:]}")
    return done.returncode == 0


def passes_without(guard: Guard, copy: pathlib.Path) -> bool:
    """Return whether the test passes although the guard is gone; it must pass with the guard."""
    path = copy / guard.file
    text = path.read_text()
    if text.count(guard.guard) != 1:
        raise SystemExit(f"{guard.file}: the guard is there {text.count(guard.guard)} times: {guard.guard!r}")
    if not passes(guard, copy):
        raise SystemExit(f"{' '.join(guard.test)}: fails with the guard, so it proves nothing")
    path.write_text(text.replace(guard.guard, guard.without))
    try:
        return passes(guard, copy)
    finally:
        path.write_text(text)


def main(names: list[str]) -> int:
    """Try the guards of these names, or all; return the number of those whose removal no test noticed."""
    unnoticed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".venv", ".git", "dist", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for name in names or GUARDS:
            is_unnoticed = passes_without(GUARDS[name], copy)
            unnoticed += is_unnoticed
            sys.stdout.write(f"{'NOT NOTICED' if is_unnoticed else 'noticed'}  {name}\n")
            sys.stdout.flush()
    return unnoticed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
