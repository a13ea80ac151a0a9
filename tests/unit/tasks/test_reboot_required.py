import pytest

from gpuops.errors import DocumentError

FLAG, PACKAGES = "/run/reboot-required", "/run/reboot-required.pkgs"


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, [FLAG, PACKAGES]),
        ({FLAG: "x", PACKAGES: "linux-base\n"}, [PACKAGES]),
        ({FLAG: "x", PACKAGES: "linux-base\nnvidia\n"}, []),
        ({PACKAGES: "nvidia\n"}, [FLAG]),
    ],
)
def test_a_reason_is_noted_once(planned, notes, expected):
    found = planned("reboot_required", notes, reason="nvidia")
    assert [change.what.partition(" ")[2] for change in found.changes] == expected


@pytest.mark.parametrize("reason", ["", "two words", "a\nb"])
def test_a_reason_is_one_word(planned, reason):
    with pytest.raises(DocumentError, match="reason must be one word"):
        planned("reboot_required", {}, reason=reason)
