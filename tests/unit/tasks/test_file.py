import grp
import os
import pwd
import signal
import stat
import subprocess
import time

import pytest

from gpuops import Failed, Later, Secret
from gpuops.errors import DocumentError

ME = {"owner": pwd.getpwuid(os.geteuid()).pw_name, "group": grp.getgrgid(os.getegid()).gr_name}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "conf.d" / "a b'c.conf"


def whats(found):
    return [change.what for change in found.changes]


@pytest.mark.parametrize("content", ["", "one\ntwo\n", "no end of line", "é $(id) `id` \\ ' \" %s\n"])
def test_a_file_is_written_once_with_its_mode(here, path, content):
    first = here.plan("file", path=str(path), content=content, mode="0600", **ME)
    assert whats(first) == [f"write {path}"]
    assert not path.parent.exists()
    assert here.apply("file", path=str(path), content=content, mode="0600", **ME).changes == []
    assert path.read_text() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_difference_is_shown_and_replaced(here, path):
    here.apply("file", path=str(path), content="old\n", **ME)
    (change,) = here.plan("file", path=str(path), content="new\n", **ME).changes
    assert (change.what, change.before, change.after) == (f"replace {path}", "old\n", "new\n")
    assert here.apply("file", path=str(path), content="new\n", **ME).changes == []
    assert path.read_text() == "new\n"


def test_mode_alone_is_set_without_touching_the_content(here, path):
    here.apply("file", path=str(path), content="x", **ME)
    assert whats(here.plan("file", path=str(path), mode="0640", **ME)) == [f"{path} mode 0640 (was 644)"]
    assert here.apply("file", path=str(path), mode="0640", **ME).changes == []
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("x", 0o640)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_write_that_is_ended_leaves_nothing_behind(here, path, number):
    (change,) = here.plan("file", path=str(path), content="new", **ME).changes
    writer = subprocess.Popen(change.command.words, stdin=subprocess.PIPE)
    writer.stdin.write(b"half")
    writer.stdin.flush()
    ends = time.monotonic() + 10
    while not [draft for draft in path.parent.glob("*") if draft.read_text() == "half"]:
        assert time.monotonic() < ends
        time.sleep(0.005)
    writer.send_signal(number)
    writer.stdin.close()
    writer.wait(10)
    assert [p for p in path.parent.iterdir() if p != path] == []


def test_another_owner_is_planned(planned):
    found = planned(
        "file", {"sh -c stat": "644:nobody:nogroup:65534:65534:regular file\nx"}, path="/etc/x", content="x"
    )
    assert [(c.what, str(c.command)) for c in found.changes] == [
        ("/etc/x owner root:root (was nobody:nogroup)", "chown root:root -- /etc/x")
    ]


def test_a_link_in_its_place_is_replaced_and_its_target_stays(here, path, tmp_path):
    path.parent.mkdir()
    (tmp_path / "target").write_text("wanted\n")
    path.symlink_to(tmp_path / "target")
    assert here.apply("file", path=str(path), content="wanted\n", **ME).changes == []
    assert not path.is_symlink()
    (tmp_path / "target").write_text("of somebody else\n")
    assert path.read_text() == "wanted\n"


def test_an_absent_file_is_removed_and_stays_away(here, path):
    here.apply("file", path=str(path), content="x", **ME)
    assert whats(here.plan("file", path=str(path), state="absent")) == [f"remove {path}"]
    assert here.apply("file", path=str(path), state="absent").changes == []
    assert not path.exists()


def test_a_folder_is_left_alone(here, tmp_path):
    assert here.plan("file", path=str(tmp_path), content="x").stop == Failed(
        f"{tmp_path} is a directory; expected a file or nothing there"
    )


def test_what_the_validator_refuses_never_takes_its_place(here, path):
    here.apply("file", path=str(path), content="old\n", **ME)
    with pytest.raises(AssertionError):
        here.apply("file", path=str(path), content="new\n", validate=["grep", "-q", "old"], **ME)
    assert path.read_text() == "old\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_without_content_may_come_with_an_earlier_step(here, path):
    assert here.plan("file", path=str(path), mode="0600").later == [
        Later(f"{path} does not exist, and no content is set for it")
    ]


def test_what_cannot_be_looked_at_is_not_absent(planned):
    found = planned("file", {"sh -c stat": (1, "", "stat: cannot statx '/root/x': Permission denied")},
                    path="/root/x", state="absent")  # fmt: skip
    assert isinstance(found.stop, Failed)
    assert "Permission denied" in found.stop.why


def test_a_secret_is_written_and_never_shown(here, path):
    (change,) = here.plan("file", path=str(path), secret=Secret("hunter2"), mode="0600", **ME).changes
    assert "hunter2" not in repr(change)
    assert here.apply("file", path=str(path), secret=Secret("hunter2"), mode="0600", **ME).changes == []
    assert path.read_text() == "hunter2"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"path": "etc/x"}, 'path must start with "/"'),
        ({"path": "/x", "mode": "rw"}, "mode must be three or four octal digits"),
        ({"path": "/x", "content": "a", "secret": Secret("b")}, "set content or secret, not both"),
    ],
)
def test_wrong_parameters_are_refused_before_any_node_is_asked(planned, params, said):
    with pytest.raises(DocumentError, match=said):
        planned("file", {}, **params)
