"""Paths of Redfish resources, followed from link to link; pure, apart from the function that gets one resource.

A client must follow links rather than build addresses (DMTF DSP0266, "Resource URI patterns"), and does not ask for
what a BMC does not link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Get = Callable[[str], Body | None]
"""Return the resource at an address such as ``/redfish/v1/Chassis``; None if there is none."""

ROOT = "/redfish/v1"
MOST_PAGES = 8
MOST_MEMBERS = 64
_ADDRESS = re.compile(
    r"/redfish/v1(?:/[\w.~%:@+,()'!$&*;=-]{1,200}){0,12}/?(?:\?[\w.~%:@+,()'!$&*;=/?-]{0,200})?", re.ASCII
)
_NEXT = "Members@odata.nextLink"


@dataclass(frozen=True)
class _Place:
    """A resource: its name in the answer, and its address, or its body if another resource contains it in full."""

    name: str
    address: str = ""
    body: Body | None = None


def read_paths(paths: Sequence[str], get: Get) -> dict[str, Body]:
    """Return every resource that ``paths`` select, each read once; names are paths with the members' own names.

    Members that a collection contains in full are omitted if the collection itself is among ``paths``. Of the others,
    only the last 64 are read then: a log names its newest entries last.
    """
    cache: dict[str, Body | None] = {}

    def once(address: str) -> Body | None:
        if address not in cache:
            cache[address] = _with_pages(get(address), get)
        return cache[address]

    found: dict[str, Body] = {}
    for path in paths:
        for place in _selected(path.removeprefix(ROOT).strip("/").split("/"), once, listed=path[:-2] in paths):
            body = place.body or once(place.address)
            if body is not None:
                found.setdefault(place.name, body)
    return found


def _selected(segments: Sequence[str], get: Get, *, listed: bool) -> list[_Place]:
    places = [_Place(ROOT, f"{ROOT}/")]
    for number, segment in enumerate(segments, start=1):
        is_last = number == len(segments)
        bodies = [(place, body) for place in places if (body := place.body or get(place.address)) is not None]
        if segment == "*":
            places = [each for place, body in bodies for each in _members(place, body, listed=listed and is_last)]
        else:
            places = [each for place, body in bodies for each in _linked(f"{place.name}/{segment}", body.get(segment))]
    return places


def _members(collection: _Place, body: Body, *, listed: bool) -> list[_Place]:
    places = [place for member in _list(body) for place in _member(collection, member)]
    return [place for place in places if place.body is None][-MOST_MEMBERS:] if listed else places


def _member(collection: _Place, member: object) -> Iterator[_Place]:
    address = member.get("@odata.id") if isinstance(member, dict) else None
    if isinstance(address, str):
        yield from _linked(f"{collection.name}/{address.rstrip('/').rpartition('/')[2]}", member)


def _linked(name: str, link: object) -> Iterator[_Place]:
    """Yield the place that a link leads to; none if it leads elsewhere than to a resource of this BMC."""
    if isinstance(link, dict) and len(link) > 1:
        yield _Place(name, body=link)
    elif isinstance(link, dict) and isinstance(address := link.get("@odata.id"), str) and _ADDRESS.fullmatch(address):
        yield _Place(name, address)


def _with_pages(body: Body | None, get: Get) -> Body | None:
    """Return a collection with the members of its next pages; a link to a page that was not read remains."""
    for _ in range(MOST_PAGES - 1):
        link = body.get(_NEXT) if body else None
        if not body or not isinstance(link, str) or not _ADDRESS.fullmatch(link):
            break
        page = get(link) or {}
        rest = {_NEXT: page[_NEXT]} if _NEXT in page else {}
        kept = {key: value for key, value in body.items() if key != _NEXT}
        body = {**kept, "Members": [*_list(body), *_list(page)], **rest}
    return body


def _list(body: Body) -> list[Any]:
    members = body.get("Members")
    return members if isinstance(members, list) else []
