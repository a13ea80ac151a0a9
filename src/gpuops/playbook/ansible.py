"""The gpuops way of what an Ansible user writes, for the messages that refuse it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_FACTS = "facts.NAME is queried where a condition or a parameter names it"
_OWN_NODE = "every step runs on its own node, because only the nodes of a play are locked"
_NO_RESCUE = "a failed node stays as it is, and the next run repairs it; undoing is a playbook of its own"
_INCLUDE = "use `include`"
_INVENTORY = "set it in the inventory"
_LOOP = "use `loop`, a list, and {{ item }}"
_PACKAGE = "use `package`"
_ROOT = "commands run as the login user or as root; become: true asks for root"
_UNIT = "use `service`; a file of a unit is the task `unit`"

KEYS: Mapping[str, str] = {
    "always": _NO_RESCUE,
    "rescue": _NO_RESCUE,
    "delegate_to": _OWN_NODE,
    "delegate_facts": _OWN_NODE,
    "local_action": _OWN_NODE,
    "strategy": "all nodes of a batch take each step together; see `serial`",
    "gather_facts": f"leave it out; {_FACTS}",
    "roles": "use `include`, which takes a file of tasks or a playbook",
    "pre_tasks": "put them first in `tasks`",
    "post_tasks": "put them last in `tasks`, after `flush: handlers`",
    "listen": "a step notifies a handler by its name; `notify` takes several names",
    "loop_control": "the element is {{ item }}, and the report counts the items",
    "environment": "use `command` with words: [env, NAME=value, PROGRAM, …]",
    "no_log": "use !env NAME or !file PATH, whose values are masked everywhere",
    "check_mode": "use `command` with read_only: true, which runs in check mode too",
    "diff": "use the option --diff",
    "async": "use detach: true of `command`; long steps outlive a lost connection by themselves",
    "poll": "use detach: true of `command`",
    "throttle": "use `serial` of the play, or the option --forks",
    "become_user": _ROOT,
    "become_method": "sudo is used",
    "become_flags": "sudo is used",
    "remote_user": f"{_INVENTORY}: user",
    "connection": f"{_INVENTORY}: local: true is this machine",
    "port": _INVENTORY,
    "vars_files": "use -e @FILE, the inventory or `stack`",
    "vars_prompt": "use -e NAME=VALUE, or !env NAME for a secret",
    "module_defaults": "write the parameters in each step, or `include` with vars",
    "collections": "leave it out; a task has one name",
    "force_handlers": "leave it out; the next run of the playbook runs the handlers that are due",
    "ignore_unreachable": "leave it out; the other nodes continue",
    "args": "write the parameters under the task's name",
    "action": "write the task's name as the key",
}
"""Keys of plays and tasks."""

TASKS: Mapping[str, str] = {
    **dict.fromkeys(("apt", "yum", "dnf", "dnf5", "apk", "pacman", "zypper", "homebrew"), _PACKAGE),
    **dict.fromkeys(("systemd", "systemd_service", "sysvinit"), _UNIT),
    **dict.fromkeys(("include_tasks", "import_tasks", "include_role", "import_role", "import_playbook"), _INCLUDE),
    **dict.fromkeys(("include_vars", "set_fact"), "use `vars` of the play, an include, a block or a step"),
    **dict.fromkeys(("setup", "gather_facts", "package_facts", "service_facts"), _FACTS),
    "lineinfile": "use `line`",
    "blockinfile": "use `block` with path and content",
    "replace": "use `line` with match",
    "ini_file": "use `line`, or better a drop-in with `file`",
    "shell": "use `script`, a file next to the playbook, or `command` with words: [sh, -c, …]",
    "raw": "use `command`",
    "expect": "use `command` or `script`",
    "get_url": "use `download`",
    "unarchive": "use `download` or `copy`, then `command` with words: [tar, …] and creates",
    "synchronize": "use `copy` for a file, or `download`",
    "fetch": "use `read` and `register`",
    "slurp": "use `read` and `register`",
    "apt_repository": "use `apt_repo`",
    "deb822_repository": "use `apt_repo`",
    "yum_repository": "use `dnf_repo`",
    "apt_key": "use `repo_key`",
    "rpm_key": "use `repo_key`",
    "dpkg_selections": "use `package_hold`",
    "modprobe": "use `kernel_module`",
    "pam_limits": "use `limits`",
    "cron": "use `unit` for a timer, or `file` in /etc/cron.d",
    "debug": "leave it out; --diff and --json show what changes, `assert` checks a value",
    "fail": "use `assert` with `when`",
    "pause": "use `wait_for`",
    "wait_for_connection": "leave it out; `reboot` waits for the node",
    "meta": "use `flush: handlers`",
    "uri": "use `wait_for` or `command` with words: [curl, …] and read_only: true",
    "pip": "use `command` with words: [pip, install, …] and a guard",
    "git": "use `command` with words: [git, clone, …] and creates",
    "selinux": "use `line` in /etc/selinux/config, then `reboot`",
    "alternatives": "use `command` with a guard",
    "add_host": "name all nodes in the inventory",
    "group_by": "use groups of the inventory, or `when`",
}
"""Modules that gpuops has under another name, or does otherwise."""

PARAMETERS: Mapping[str, str] = {
    "dest": "path",
    "regexp": "match",
    "regex": "match",
    "insertafter": "after",
    "argv": "words",
    "cmd": "words",
    "timeout": "seconds",
    "checksum": "sha256",
    "pkg": "names",
    "msg": "message",
    "variables": "values",
    "vars": "values",
}
"""Parameters by the name that Ansible's modules give them."""

VALUES: Mapping[tuple[str, str, str], str] = {
    ("file", "state", "directory"): "use the task `directory`",
    ("file", "state", "link"): "use the task `link`",
    ("file", "state", "touch"): 'use content: ""',
    ("package", "state", "latest"): "use `versions`, so that every run installs the same",
    ("package", "state", "installed"): "use present",
}
"""Values of parameters, by task, parameter and value."""

RESULTS: Mapping[str, str] = {
    "rc": "value.exit",
    "stdout": "value.out",
    "stderr": "value.err",
    "stdout_lines": "value.out",
    "stat": "value",
    "content": "value.content",
    "failed": 'status == "failed"',
    "skipped": 'status == "skipped"',
    "msg": "status",
    "item": "results",
}
"""Parts of a registered result, by Ansible's names."""


def instead_of_key(key: str) -> str:
    """Return the gpuops way of a key of Ansible's plays and tasks; an empty string if it is none."""
    return _LOOP if key.startswith("with_") else KEYS.get(key, "")


def instead_of_task(name: str, tasks: Iterable[str]) -> str:
    """Return the gpuops way of a module's name, such as ``ansible.builtin.copy``; an empty string if it is none."""
    short = name.rpartition(".")[2]
    if short != name and short in tasks:
        return f"use `{short}`, without a collection"
    if short in TASKS:
        return TASKS[short]
    return "gpuops has tasks of its own: see docs/tasks.md" if short != name else ""
