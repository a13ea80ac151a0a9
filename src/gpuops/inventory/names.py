"""Names of hosts, groups and users, and ranges of names: ``gpu[001:128]`` is gpu001 to gpu128."""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Collection, Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from gpuops.document import Where
from gpuops.errors import DocumentError

MOST_HOSTS = 100_000
LOCALHOST = ("localhost", "127.0.0.1", "::1")
"""The names of this machine, as Ansible has them."""
_RANGE = re.compile(r"\[([^\[\]]*)\]")
_LETTERS = re.compile(r"([a-zA-Z]):([a-zA-Z])(?::([0-9]{1,9}))?")
_NUMBERS = re.compile(r"([0-9]{0,9}):([0-9]{1,9})(?::([0-9]{1,9}))?")
_FOLDED = re.compile(r"([0-9]{1,999})-([0-9]{1,999})")  # ClusterShell would build the whole range in memory
_WITH_PORT = re.compile(r"((?:[^:\[\]]|\[[^\[\]]*\])+):(\d+)")
_ADDRESS_WITH_PORT = re.compile(r"\[([^\[\]]+)\]:(\d+)")


def node_set(names: Iterable[str]) -> str:
    """Return ``names`` as a folded set, ``gpu[001-128]``, which a PATTERN takes."""
    return str(NodeSet(",".join(names), resolver=RESOLVER_NOGROUP))


def check_host(name: str, where: Where, what: str = "host name") -> str:
    """Return ``name`` if it is a host name or an IP address that is safe in shells, arguments and file names."""
    return name if is_ipv6(name) else _check(name, where, what, ".-")


def check_group(name: str, where: Where) -> str:
    """Return ``name`` if it can be used in a host pattern."""
    return _check(name, where, "group name", ".-+@/")


def check_user(name: str, where: Where) -> str:
    """Return ``name`` if it is a login name, possibly with a domain (``ops@example.com``)."""
    return _check(name, where, "user name", ".-+@")


def _check(name: str, where: Where, what: str, marks: str) -> str:
    """Accept letters and digits of any script, ``_`` and ``marks``; the first is a letter, a digit or ``_``.

    Names are passed to ssh, ProxyCommand and users' shell scripts; see CVE-2023-51385 for what metacharacters do there.
    """
    if not name or name[0] in marks:
        start = f"starts with {name[0]!a}" if name else "is empty"
        raise DocumentError(where, f'{what} {name!a} {start}; expected a letter, a digit or "_" first')
    odd = next((c for c in name if not (c.isalnum() or c == "_" or c in marks)), "")
    if odd:
        hint = "; write the user as ansible_user" if odd == "@" else ""
        raise DocumentError(where, f'{what} {name!a} contains {odd!a}; use letters, digits, "_" and {marks}{hint}')
    return name


def is_ipv6(text: str) -> bool:
    """Return True if ``text`` is an IPv6 address, with or without a scope."""
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return (address.scope_id or "eth0").isalnum()


def is_address(text: str) -> bool:
    """Return whether ``text`` is an IP address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return is_ipv6(text)
    return True


def split_user(name: str, where: Where) -> tuple[str, str]:
    """``ops@gpu01:2222`` as user and host; the user is empty if there is none."""
    user, mark, host = name.rpartition("@")
    return (check_user(user, where) if mark else ""), host


def has_port(text: str) -> bool:
    """Return whether ``text`` is ``gpu01:2222`` or ``[2001:db8::1]:2222``."""
    return not is_ipv6(text) and bool(_ADDRESS_WITH_PORT.fullmatch(text) or _WITH_PORT.fullmatch(text))


def split_port(pattern: str, where: Where) -> tuple[str, int | None]:
    """Split ``gpu01:2222`` or ``[2001:db8::1]:2222`` into name and port."""
    if is_ipv6(pattern):
        return pattern, None
    bracketed = _ADDRESS_WITH_PORT.fullmatch(pattern)
    match = bracketed if bracketed and is_ipv6(bracketed.group(1)) else _WITH_PORT.fullmatch(pattern)
    if match is None:
        return pattern, None
    port = int(match.group(2)) if len(match.group(2)) < 8 else -1
    if not 1 <= port <= 65535:
        raise DocumentError(where, f"a port must be between 1 and 65535, found {match.group(2)}")
    return match.group(1), port


def expand(pattern: str, where: Where) -> list[str]:
    """Return every name of a range such as ``gpu[001:128]``, ``gpu[a:f]`` or ``gpu[0:9:3]``, or the name itself."""
    match = _RANGE.search(pattern)
    if match is None or is_ipv6(pattern):
        return [pattern]
    endings = expand(pattern[match.end() :], where)
    values = range_values(match.group(1), where)
    if len(values) * len(endings) > MOST_HOSTS:
        raise DocumentError(where, f'"{pattern}" contains more than {MOST_HOSTS} hosts')
    return [pattern[: match.start()] + value + ending for value in values for ending in endings]


def unfold(text: str, where: Where) -> Iterable[str]:
    """Return every name of a range (``gpu[001:128]``) or of a folded node set (``gpu[001-128,130]``)."""
    if "[" not in text or ":" in text:
        return expand(text, where)
    too_many = any(int(end) - int(begin) >= MOST_HOSTS for begin, end in _FOLDED.findall(text))
    if reversed_range := next((f"{begin}-{end}" for begin, end in _FOLDED.findall(text) if int(begin) > int(end)), ""):
        raise DocumentError(where, f'"{text}" is not a node set: {reversed_range} ends below its beginning')
    try:
        nodes: Collection[str] = () if too_many else NodeSet(text, resolver=RESOLVER_NOGROUP)
    except (NodeSetException, ValueError) as error:
        raise DocumentError(where, f'"{text}" is not a node set: {error}') from error
    if too_many or len(nodes) > MOST_HOSTS:
        raise DocumentError(where, f'"{text}" contains more than {MOST_HOSTS} hosts')
    return nodes


def range_values(spec: str, where: Where) -> list[str]:
    """Return the values of a range without its brackets, both ends included: ``001:128``, ``a:f``, ``0:8:2``."""
    match = _LETTERS.fullmatch(spec) or _NUMBERS.fullmatch(spec)
    if match is None:
        hint = f'; did you mean "[{spec.replace("-", ":")}]"?' if spec.count("-") == 1 else ""
        raise DocumentError(where, f"range [{spec}] must be [begin:end] or [begin:end:step]{hint}")
    begin, end, step = match.group(1) or "0", match.group(2), int(match.group(3) or "1")
    if begin[0] == "0" and 1 < len(begin) != len(end):
        raise DocumentError(where, f"range [{spec}] begins with {len(begin)} digits and ends with {len(end)}")
    letters = string.ascii_letters if begin.isalpha() else ""
    first, last = (letters.index(begin), letters.index(end)) if letters else (int(begin), int(end))
    if first > last or step == 0:
        raise DocumentError(where, f"range [{spec}] is empty; expected begin <= end and a step of 1 or more")
    if (last - first) // step >= MOST_HOSTS:
        raise DocumentError(where, f"range [{spec}] contains more than {MOST_HOSTS} names")
    width = len(begin) if begin[0] == "0" else 0
    return [letters[n] if letters else str(n).zfill(width) for n in range(first, last + 1, step)]
