import pytest

from gpuops import Failed


def test_an_entry_is_its_fields(planned):
    found = planned("getent", {"getent group video": "video:x:44:alice,bob\n"}, database="group", name="video")
    assert found.value == ["video", "x", "44", "alice,bob"]
    assert planned("getent", {"getent passwd nobody": 2}, database="passwd", name="nobody").value is None


@pytest.mark.parametrize("answer", ["", "video:x\n", 1, 127])
def test_what_cannot_be_told_is_not_absent(planned, answer):
    assert isinstance(planned("getent", {"getent": answer}, database="group", name="video").stop, Failed)
