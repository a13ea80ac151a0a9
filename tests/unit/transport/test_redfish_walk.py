"""Which resources a path selects, and how many a hostile tree can make it read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.transport.redfish_walk import MOST_MEMBERS, MOST_PAGES, read_paths

LOGS = "/redfish/v1/Systems/1/Log"


def link(path):
    return {"@odata.id": path}


def reading(tree, *paths):
    """What the paths select, and every address that was asked for, in order."""
    asked = []

    def get(address):
        asked.append(address)
        return tree.get(address.rstrip("/"))

    return read_paths(paths, get), asked


def tree(**below):
    return {"/redfish/v1": {"Chassis": link("/redfish/v1/Chassis")}, **below}


def test_star_is_every_member_and_only_links_are_followed():
    found, asked = reading(
        {
            "/redfish/v1": {"Chassis": link("/redfish/v1/Chassis/")},
            "/redfish/v1/Chassis": {"Members": [link("/redfish/v1/Chassis/a"), link("/redfish/v1/Chassis/b/")]},
            "/redfish/v1/Chassis/a": {"Power": link("/redfish/v1/elsewhere/7"), "n": 1},
            "/redfish/v1/Chassis/b": {"n": 2},
            "/redfish/v1/elsewhere/7": {"n": 3},
        },
        "/redfish/v1/Chassis/*",
        "/redfish/v1/Chassis/*/Power",
    )
    assert {path: body["n"] for path, body in found.items()} == {
        "/redfish/v1/Chassis/a": 1,
        "/redfish/v1/Chassis/b": 2,
        "/redfish/v1/Chassis/a/Power": 3,
    }
    assert len(asked) == len(set(asked)) == 5, "each resource is read once, and nothing that is not linked"


def test_body_inside_another_is_not_read_again():
    inside = {"@odata.id": "/redfish/v1/Chassis/a", "Power": {"@odata.id": "/x", "PowerSupplies": []}}
    found, asked = reading(
        {"/redfish/v1": {"Chassis": {"@odata.id": "/redfish/v1/Chassis", "Members": [inside]}}},
        "/redfish/v1/Chassis/*/Power",
    )
    assert list(found) == ["/redfish/v1/Chassis/a/Power"]
    assert asked == ["/redfish/v1/"]


def log(members, **more):
    return {
        "/redfish/v1": {"Entries": link(LOGS)},
        LOGS: {"Members": members, **more},
    }


def test_entries_that_the_collection_contains_are_omitted():
    whole = {"@odata.id": f"{LOGS}/1", "Severity": "OK"}
    found, _ = reading(
        {**log([whole, link(f"{LOGS}/2")]), f"{LOGS}/2": {"n": 2}}, "/redfish/v1/Entries", "/redfish/v1/Entries/*"
    )
    assert list(found) == ["/redfish/v1/Entries", "/redfish/v1/Entries/2"]
    alone, _ = reading({**log([whole])}, "/redfish/v1/Entries/*")
    assert list(alone) == ["/redfish/v1/Entries/1"]


def test_last_entries_of_a_long_log_are_read():
    members = [link(f"{LOGS}/{n}") for n in range(500)]
    bodies = {member["@odata.id"]: {"n": n} for n, member in enumerate(members)}
    found, _ = reading({**log(members), **bodies}, "/redfish/v1/Entries", "/redfish/v1/Entries/*")
    assert [body["n"] for path, body in found.items() if path != "/redfish/v1/Entries"] == list(
        range(500 - MOST_MEMBERS, 500)
    )


def test_pages_are_joined():
    following = {"Members@odata.nextLink": f"{LOGS}?$skip=2"}
    pages = {**log([link(f"{LOGS}/1")], **following), f"{LOGS}?$skip=2": {"Members": [link(f"{LOGS}/2")]}}
    found, _ = reading(pages, "/redfish/v1/Entries")
    assert found["/redfish/v1/Entries"] == {"Members": [link(f"{LOGS}/1"), link(f"{LOGS}/2")]}


def test_pages_without_end_are_left_and_the_link_shows_it():
    endless = log([link(f"{LOGS}/1")], **{"Members@odata.nextLink": LOGS})
    found, asked = reading(endless, "/redfish/v1/Entries")
    assert len(asked) == 1 + MOST_PAGES
    assert found["/redfish/v1/Entries"]["Members@odata.nextLink"] == LOGS


@pytest.mark.parametrize(
    "address",
    [
        "http://a/redfish/v1/x",
        "//a/redfish/v1/x",
        "/etc/passwd",
        "/redfish/v1/a b",
        "/redfish/v1/\n",
        "/redfish/v1" + "/a" * 99,
        *("/redfish/v1/x#y", "/redfish/v1/\u00e9", "redfish/v1/x", "", 7, None, ["/redfish/v1/x"], {"@odata.id": "/x"}),
    ],
)
def test_address_that_is_none_of_a_resource_is_not_asked_for(address):
    found, asked = reading({"/redfish/v1": {"Chassis": link(address)}}, "/redfish/v1/Chassis")
    assert (found, asked) == ({}, ["/redfish/v1/"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("/redfish/v1/Chassis"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["Members", "@odata.id", "Chassis", "Power", "Members@odata.nextLink"]), inner
        )
    ),
)


@given(body=st.dictionaries(st.sampled_from(["Members", "@odata.id", "Chassis", "Power"]), JSON), page=JSON)
def test_any_tree_is_read(body, page):
    page = page if isinstance(page, dict) else {}
    found, asked = reading(
        {"/redfish/v1": {**body, "Chassis": link("/redfish/v1/Chassis")}, "/redfish/v1/Chassis": page},
        "/redfish/v1/Chassis/*/Power",
        "/redfish/v1/*",
    )
    assert json.dumps(found)
    assert len(asked) < 200
