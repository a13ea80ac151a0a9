"""Arguments for ssh in an inventory: an allow list, because an unknown one may skip host keys or run a program."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from gpuops.document import YamlNode
from gpuops.errors import DocumentError
from gpuops.inventory.values import readable

SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_HOP = re.compile(r"(?:ssh://)?[\w.@:%\[\]][\w.@:%\[\]+-]*")
_HOPS = {"proxyjump": "jump", "proxycommand": "proxy_command"}
_ALLOWED = frozenset(
    "addressfamily batchmode bindaddress bindinterface canonicaldomains canonicalizehostname casignaturealgorithms"
    " certificatefile checkhostip ciphers compression connectionattempts connecttimeout globalknownhostsfile"
    " gssapiauthentication gssapiclientidentity gssapikeyexchange gssapiserveridentity hashknownhosts hostkeyalgorithms"
    " hostkeyalias hostname identitiesonly identityagent identityfile ipqos kbdinteractiveauthentication kexalgorithms"
    " loglevel macs numberofpasswordprompts passwordauthentication port preferredauthentications"
    " pubkeyacceptedalgorithms pubkeyacceptedkeytypes pubkeyauthentication rekeylimit requiredrsasize"
    " serveralivecountmax serveraliveinterval tcpkeepalive user userknownhostsfile visualhostkey".split()
)
"""Options that neither skip the host's key, nor run a program, nor lend the node anything of this machine."""

_OVERRIDDEN = {
    "stricthostkeychecking": ("yes", "true"),
    "forwardagent": ("no", "false"),
    "forwardx11": ("no", "false"),
    "forwardx11trusted": ("no", "false"),
    "requesttty": ("no", "false"),
    "updatehostkeys": ("no", "false"),
    "addkeystoagent": ("no", "false"),
}
"""Options of which gpuops supports only these values; another value is ignored with a warning."""

_IGNORED = frozenset(("controlmaster", "controlpath", "controlpersist"))
_VALUED = {"-i": "IdentityFile", "-p": "Port", "-l": "User", "-F": "-F", "-J": "ProxyJump", "-b": "BindAddress"}
_PLAIN = {"-C": "Compression=yes", "-4": "AddressFamily=inet", "-6": "AddressFamily=inet6"}
_MEANINGLESS = re.compile(r"-(?:q+|v+|a|x|T|n)\Z")
_WARNED = {"-A": "ForwardAgent", "-X": "ForwardX11", "-Y": "ForwardX11Trusted", "-t": "RequestTTY", "-tt": "RequestTTY"}
Option = tuple[str, str]


def read_ssh_args(nodes: Mapping[str, YamlNode]) -> tuple[dict[str, Any], list[str]]:
    """Return ProxyJump, ProxyCommand and other ssh arguments, with warnings; the first of each wins, as in ssh.

    Raise `DocumentError` for an argument that is not on the allow list.
    """
    fields: dict[str, Any] = {}
    warnings: list[str] = []
    rest: list[str] = []
    for key, node in nodes.items():
        for option, value in _options(node, key):
            name = option.lower()
            if name in _HOPS:
                fields.setdefault(_HOPS[name], _hop(name, value, node, key))
            elif why := _without_effect(name, value):
                warnings.append(f"{node.where}: {key} {why.format(option=option)}")
            elif name not in _IGNORED and name not in _OVERRIDDEN:
                rest += _checked(option, value, node, key)
    if len(fields) == 2:  # ssh uses whichever comes first
        del fields[list(fields)[1]]
    return {**{k: v for k, v in fields.items() if v}, **({"ssh_args": tuple(rest)} if rest else {})}, warnings


def _without_effect(name: str, value: str) -> str:
    """Return why an option is ignored, or an empty string."""
    if name == "stricthostkeychecking" and value.lower() not in _OVERRIDDEN[name]:
        return "turns off {option}; gpuops verifies host keys nevertheless"
    if name in ("userknownhostsfile", "globalknownhostsfile") and value.lower() in ("/dev/null", "none"):
        return "turns off {option}; gpuops verifies host keys nevertheless"
    if name in _OVERRIDDEN and value.lower() not in _OVERRIDDEN[name]:
        return "sets {option}; gpuops leaves it off nevertheless"
    return ""


def _checked(option: str, value: str, node: YamlNode, key: str) -> list[str]:
    if option == "-F":
        return ["-F", value]
    if option.lower() not in _ALLOWED:
        raise DocumentError(
            node.where, f'{key}: unsupported ssh option "{option}"; remove it, or set it in ~/.ssh/config'
        )
    return ["-o", f"{option}={value}"]


def _options(node: YamlNode, key: str) -> Iterator[Option]:
    """Yield every argument as an option of ``ssh_config`` and its value; flags without an effect are left out."""
    rest = iter(_split(node, key))
    for word in rest:
        flag, attached = word[:2], word[2:]
        if flag == "-o":
            option = re.split(r"\s*=\s*|\s+", (attached or next(rest, "")).strip(), maxsplit=1)
            yield option[0], option[1] if len(option) > 1 else ""
        elif flag in _VALUED:
            yield _VALUED[flag], attached or next(rest, "")
        elif word in _PLAIN:
            name, _, value = _PLAIN[word].partition("=")
            yield name, value
        elif word in _WARNED:
            yield _WARNED[word], "yes"
        elif not _MEANINGLESS.match(word):
            yield word, ""


def _split(node: YamlNode, key: str) -> list[str]:
    try:
        words = shlex.split(readable(node, key).text(key))
    except ValueError as error:
        raise node.fail(f"{key}: {str(error).lower()}") from error
    if not all(map(str.isprintable, words)):
        raise node.fail(f"{key}: contains a control character")
    return words


def _hop(name: str, value: str, node: YamlNode, key: str) -> str:
    if value.lower() == "none":
        return ""
    if name == "proxyjump" and not all(_HOP.fullmatch(hop) for hop in value.split(",")):
        raise DocumentError(node.where, f"{key}: ProxyJump {value!a} is not [user@]host[:port]")
    if not value:
        raise DocumentError(node.where, f"{key}: ProxyCommand without a command")
    return value
