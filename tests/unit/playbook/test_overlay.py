"""What check mode assumes of a node after the changes that it only planned."""

import pytest

from gpuops.playbook.overlay import DependsError, Overlay
from gpuops.playbook.task import Change
from gpuops.shell import Command, Completed, Files, read_files

STEP = '1.1 "first"'
FILE = {"kind": "file", "mode": "0644", "owner": "root", "group": "root"}
SHOW = ("systemctl", "show", "--property=LoadState,ActiveState,UnitFileState,NeedDaemonReload", "--")
MISSING = "LoadState=not-found\nActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\n"


def planned(leaves=None, words=("x",), overlay=None, doubtful=None):
    overlay = overlay if overlay is not None else Overlay()
    overlay.add(STEP, [Change("x", Command(words), leaves=leaves or {})] if leaves or words != ("x",) else [], doubtful)
    return overlay


def answer(overlay, question, exit_=0, out=""):
    question = question if isinstance(question, Files) else Command(question)
    (told,) = overlay.answer([question], lambda questions: [Completed("n1", q, exit_, out) for q in questions])
    return told


def depends(work):
    with pytest.raises(DependsError, match=r'depends on step 1\.1 "first"'):
        work()


def test_a_file_that_would_be_written_is_there_with_its_content_and_so_is_its_directory():
    overlay = planned({"/a/b": {**FILE, "content": "text"}})
    assert overlay.stat("/a/b", "text", lambda: None)["content"] == "text"
    assert overlay.stat("/a/b", "sha256", lambda: None)["content"].startswith("982d9e3eb996f559")
    assert overlay.stat("/a", "", lambda: None)["kind"] == "directory"
    assert overlay.stat("/c", "", lambda: None) is None
    assert read_files(answer(overlay, Files(("/a/*",)), out="/a/c\0C\0").out) == {"/a/c": "C", "/a/b": "text"}
    assert answer(overlay, ("test", "-e", "/a/b"), 1).exit == 0


def test_a_file_that_would_be_removed_is_gone():
    overlay = planned({"/a": None})
    assert overlay.stat("/a", "text", lambda: FILE) is None
    assert answer(overlay, ("test", "-e", "/a")).exit == 1
    assert answer(overlay, Files(("/a",)), out="/a\0A\0").out == ""


def test_new_attributes_leave_the_content_as_it_is():
    overlay = planned({"/a": {**FILE, "mode": "0600"}})
    found = overlay.stat("/a", "text", lambda: {**FILE, "uid": "0", "gid": "0", "content": "old"})
    assert (found["mode"], found["content"]) == ("0600", "old")


@pytest.mark.parametrize(
    "ask",
    [
        lambda overlay: overlay.stat("/a", "", lambda: None),
        lambda overlay: answer(overlay, Files(("/a",))),
        lambda overlay: answer(overlay, ("grep", "-q", "x", "/a")),
        lambda overlay: answer(overlay, ("sh", "-c", "cat </a")),
    ],
)
def test_of_what_is_only_known_to_be_there_nothing_else_is_told(ask):
    overlay = planned({"/a": ...})
    depends(lambda: ask(overlay))
    assert answer(overlay, ("test", "-e", "/a"), 1).exit == 0


@pytest.mark.parametrize("path", ["/opt/x", "/opt/x/bin"])
def test_a_command_that_does_not_say_what_it_leaves_touches_the_paths_that_it_names(path):
    overlay = planned(words=("sh", "-c", "tar -C /opt/x -xf /tmp/x.tar"))
    depends(lambda: overlay.stat(path, "", lambda: None))
    depends(lambda: answer(overlay, ("ls", "/opt")))
    assert overlay.stat("/etc/x", "", lambda: None) is None


def test_what_a_step_in_doubt_would_change_is_in_doubt():
    from gpuops.playbook.parameters import as_params
    from gpuops.playbook.task import TaskRegistry

    service = as_params(TaskRegistry()["service"], {"name": "agent", "state": "started"})
    overlay = planned(doubtful=service)
    depends(lambda: answer(overlay, (*SHOW, "agent.service"), out=MISSING))
    assert answer(overlay, (*SHOW, "other.service"), out=MISSING).out == MISSING


def test_a_user_and_a_group():
    overlay = planned({"passwd me": ["me", "x", "?", "?", "", "/home/me", "?"], "group gone": None, "group odd": ...})
    assert answer(overlay, ("getent", "passwd", "me"), 2).out == "me:x:?:?::/home/me:?\n"
    assert answer(overlay, ("getent", "group", "gone"), out="gone:x:5:\n").exit == 2
    depends(lambda: answer(overlay, ("getent", "group", "odd"), 2))
    depends(lambda: answer(overlay, ("id", "-Gn", "me")))
    assert answer(overlay, ("getent", "passwd", "you"), 2).exit == 2


def test_a_unit_is_there_after_its_file_and_runs_after_its_start():
    content = "[Service]\n[Install]\n"
    overlay = planned({"/etc/systemd/system/a.service": {**FILE, "content": content}})
    assert answer(overlay, (*SHOW, "a.service"), out=MISSING).out == (
        "LoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\nNeedDaemonReload=yes\n"
    )
    planned(words=("systemctl", "daemon-reload"), overlay=overlay)
    planned(words=("systemctl", "start", "--", "a.service"), overlay=overlay)
    planned(words=("systemctl", "enable", "--", "a.service"), overlay=overlay)
    assert answer(overlay, (*SHOW, "a.service"), out=MISSING).out == (
        "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n"
    )


def test_a_package_is_installed_and_may_bring_what_is_missing():
    overlay = planned({"package agent": {"version": "1.0"}, "package old": None})
    query = ("dpkg-query", "-W", "-f=${Package}\t${Version}\t${db:Status-Abbrev}\n", "--", "agent", "old")
    assert answer(overlay, query, 1, "old\t0.9\tii \n").out == "agent\t1.0\tii \n"
    depends(lambda: answer(overlay, (*SHOW, "any.service"), out=MISSING))
    depends(lambda: answer(overlay, ("getent", "passwd", "any"), 2))
    depends(lambda: overlay.stat("/etc/agent/agent.conf", "", lambda: None))
    depends(lambda: answer(overlay, ("which", "agent"), 1))
    assert overlay.stat("/etc/other.conf", "", lambda: None) is None
    assert overlay.stat("/etc/agent/there", "", lambda: FILE) == FILE
    for path in ("/etc/systemd/system/agent.service.d/more.conf", "/etc/agent/50-gpuops.conf"):
        assert overlay.stat(path, "", lambda: None) is None


def test_the_steps_that_may_be_missing_are_named():
    overlay = planned({"package agent": {"version": "1"}})
    overlay.add('1.2 "second"', [Change("x", Command(("x",)), leaves={"/b": None})])
    assert overlay.suspects("no unit agent.service") == 'depends on step 1.1 "first"'
    assert overlay.suspects("who knows") == 'depends on step 1.1 "first" or 1.2 "second"'
    for number in (3, 4):
        overlay.add(f'1.{number} "more"', [])
    assert overlay.suspects("who knows") == "depends on one of the steps 1.1, 1.2, 1.3, 1.4"


def test_an_overlay_of_nothing_changes_no_answer():
    assert not Overlay()
    assert answer(Overlay(), ("grep", "x", "/a"), 1).exit == 1
