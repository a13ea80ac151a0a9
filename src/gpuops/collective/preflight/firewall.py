"""The rule with which the firewall of a node lets another node in, for nodes that show their rules; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_TABLE = re.compile(r"table (\w+) (\S+) \{")
_CHAIN = re.compile(r"\s*chain (\S+) \{")


def input_chains(lines: Iterable[str]) -> Iterator[str]:
    """Yield family, table and name of each chain that judges what comes in, from ``nft list chains``.

    Each of them has to accept a packet, since one that drops it decides (nft(8), "chain"). A chain of another family
    than inet and ip does not see IPv4.
    """
    family = table = chain = ""
    for line in lines:
        if match := _TABLE.match(line):
            family, table = match.groups()
        elif match := _CHAIN.match(line):
            chain = match[1]
        elif "type filter hook input" in line and family in ("inet", "ip"):
            yield f"{family} {table} {chain}"


def opening(chains: Sequence[str], sources: Sequence[str], host: str, port: int | None = None) -> str:
    """Return the command that lets ``sources`` in to ``port`` of ``host`` (None: to all); empty without chains."""
    which = sources[0] if len(sources) == 1 else f"'{{ {', '.join(sources)} }}'"
    what = f"tcp dport {port} " if port else ""
    rules = [f"nft insert rule {chain} ip saddr {which} {what}accept" for chain in chains]
    kept = "its firewall's own files, or it is lost at a reload"
    return f"{' && '.join(rules)}   on {host}; then add the same to {kept}" if rules and sources else ""
