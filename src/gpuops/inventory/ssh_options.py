"""What the inventory says of a login, as options of ``ssh_config``; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.inventory.host import Host


def ssh_options(host: Host) -> tuple[tuple[str, str], ...]:
    """Return the options that reach ``host``, in the order of ``ssh_config``, beside its address.

    An option that the inventory leaves to ``~/.ssh/config`` is not among them. Values are quoted as ssh reads them
    (ssh_config(5)): words with blanks in quotes, and ``%`` doubled in a path.
    """
    return tuple((name, value) for name, value in _options(host) if value)


def _options(host: Host) -> Iterator[tuple[str, str]]:
    yield "Port", str(host.port or "")
    yield "User", _quoted(host.user or "")
    yield "IdentityFile", _quoted((host.key_file or "").replace("%", "%%"))
    yield "ProxyJump", host.jump or ""
    yield "ProxyCommand", host.proxy_command or ""
    yield from _of_arguments(host.ssh_args)


def _of_arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of ``-o NAME=VALUE``, and the file of ``-F`` as one to include."""
    for flag, value in zip(words[::2], words[1::2], strict=True):
        name, _, setting = value.partition("=")
        yield ("Include", _quoted(value)) if flag == "-F" else (name, setting)


def _quoted(text: str) -> str:
    return f'"{text}"' if " " in text or "#" in text else text
