import pytest


def reasons(found):
    return [(change.reboot, change.kind) for change in found.changes]


def test_a_reboot_that_was_asked_for_is_done_once(planned):
    assert reasons(planned("reboot", {}, reason="a new driver")) == [("a new driver", "rebuild")]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({"needs-restarting": 127}, []),
        ({"needs-restarting": 0}, []),
        ({"needs-restarting": 1}, [("updates", "state")]),
        ({"needs-restarting": 127, "/run/reboot-required": ""}, [("updates", "state")]),
        (
            {
                "needs-restarting": 127,
                "/run/reboot-required": "",
                "/run/reboot-required.pkgs": "linux-base\nlibc6\nlibc6\n",
            },
            [("updates (libc6, linux-base)", "state")],
        ),
    ],
)
def test_a_node_that_asks_for_it_is_rebooted(planned, script, expected):
    assert reasons(planned("reboot", script, reason="updates", only_if_required=True)) == expected
