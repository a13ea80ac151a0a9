"""Host specifications of testinfra that name hosts of gpuops: ``gpuops://GROUP?inventory=prod.yml``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote

from gpuops.errors import InputError, did_you_mean

SCHEME = "gpuops://"
_KEYS = ("inventory", "sudo", "sudo_user", "timeout")
_COMMA = re.compile(r",(?![^\[]*\])")  # not the one in gpu[01,03]


def is_ours(text: str | None) -> bool:
    """Return True for a specification that begins with ``gpuops://``."""
    return text is not None and text.startswith(SCHEME)


def distributed(hosts: str) -> str:
    """Return the value of ``--hosts`` with one whole specification for each host.

    ``gpuops://gpu01,gpu02?inventory=prod.yml`` is one list of hosts for its writer, but two specifications for
    testinfra, the second one of another connection. Specifications of other connections stay as they are.
    """
    return ",".join(_each(_COMMA.split(hosts)))


def _each(words: list[str]) -> Iterator[str]:
    """Yield each word with the scheme and the query of the list that it belongs to."""
    own: list[str] = []
    for word in [*words, ""]:
        if own and (not word or "://" in word):
            query = next((rest for name in own for rest in [name.partition("?")[2]] if rest), "")
            names = (name.partition("?")[0].replace(",", "%2C") for name in own)
            yield from (f"{SCHEME}{name}{'?' * bool(query)}{query}" for name in names)
            own = []
        if is_ours(word) or (own and word):
            own.append(word.removeprefix(SCHEME))
        elif word:
            yield word


def parsed(spec: str) -> tuple[str, dict[str, Any]]:
    """Return the host pattern in ``spec`` and the keywords of the backend; raise `InputError` for an unknown key."""
    pattern, _, query = spec.removeprefix(SCHEME).partition("?")
    values = {key: value[-1] for key, value in parse_qs(query).items()}
    for key in values:
        if key not in _KEYS and key != "ansible_inventory":
            raise InputError(f'{spec}: unknown key "{key}"{did_you_mean(key, _KEYS) or "; use " + ", ".join(_KEYS)}')
    keywords: dict[str, Any] = {"connection": SCHEME.removesuffix("://")}
    keywords |= {key: values[key] for key in ("sudo_user", "timeout") if key in values}
    if values.get("sudo", "").lower() == "true":
        keywords["sudo"] = True
    inventory = values.get("inventory", values.get("ansible_inventory"))
    return unquote(pattern), keywords | ({"ansible_inventory": inventory} if inventory else {})
