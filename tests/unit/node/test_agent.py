import ast
import hashlib
import os
import pathlib
import re
import secrets
import subprocess
import sys
import threading
import time

import pytest

import gpuops
from gpuops.errors import LostError
from gpuops.probing import Probe
from gpuops.shell import Command, Files, read_files
from gpuops.transport import agent

NODE = pathlib.Path(gpuops.__file__).parent / "node"
SOURCE = "\n".join((NODE / f"{name}.py").read_text() for name in agent.AGENT)


def found_interpreters():
    places = [pathlib.Path(p) for p in ("/usr/bin", "/usr/local/bin", "/usr/libexec")]
    places += sorted(pathlib.Path("~/.pyenv/versions").expanduser().glob("*/bin"))
    names = [f"python3.{minor}" for minor in range(6, 20)] + ["platform-python"]
    found = [place / name for place in places for name in names if (place / name).exists()]
    return sorted({path.resolve(): str(path) for path in found}.values()) or [sys.executable]


def sh(line, **more):
    return Command(("sh", "-c", line), **more)


def alive(marker):
    """Processes of this machine that have ``marker`` in their arguments."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in words and path.parts[2] != str(os.getpid()):
            found.append(words)
    return found


def gone(marker, seconds=5.0):
    ends = time.monotonic() + seconds
    while alive(marker) and time.monotonic() < ends:
        time.sleep(0.05)
    return not alive(marker)


@pytest.fixture
def nap():
    """Seconds that no other process sleeps, so that its processes can be told by their arguments."""
    return f"{600 + secrets.randbelow(300)}.{secrets.randbelow(10**9):09}"


def test_it_is_written_in_the_grammar_of_python_3_6():
    ast.parse(SOURCE, feature_version=(3, 6))


def test_it_imports_the_standard_library_only_and_little_of_it():
    imported = {
        alias.name for part in ast.walk(ast.parse(SOURCE)) if isinstance(part, ast.Import) for alias in part.names
    }
    assert imported == {"_signal", "os", "select", "sys", "time", "zlib"}
    assert not any(isinstance(part, ast.ImportFrom) for part in ast.walk(ast.parse(SOURCE)))


@pytest.mark.parametrize("python", found_interpreters())
def test_it_runs_under_every_python_of_this_machine(open_node, python):
    node = open_node(python=python)
    answers = node.batch(
        [
            sh("readlink /proc/$PPID/exe; pwd; echo $LC_ALL"),
            Command(("cat",), stdin="é\udcff\n" * 50_000),
            sh("kill -9 $$"),
            Command(("sleep", "60"), timeout_seconds=0.3),
            Files(("/proc/sys/kernel/hostname", "/sys/class/net/*/operstate")),
        ]
    )
    exe, cwd, locale = answers[0].out.split()
    assert pathlib.Path(exe) == pathlib.Path(python).resolve()
    assert (cwd, locale) == ("/", "C")
    assert answers[1].out == "é\ufffd\n" * 50_000
    assert answers[2].exit == 137
    assert answers[3].timed_out
    assert read_files(answers[4].out)["/proc/sys/kernel/hostname"].strip() == os.uname().nodename
    assert node.run(Command(("echo", "again"))).out == "again\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (sh("exit 0"), 0),
        (sh("exit 3"), 3),
        (sh("kill -15 $$"), 143),
        (Command(("no-such-program-anywhere",)), 127),
        (Command(("/etc/hostname",)), 126),
        (Command(("/",)), 126),
    ],
)
def test_exit_codes_are_those_of_a_shell(node, command, status):
    assert node.run(command).exit == status


def test_a_folder_on_path_that_one_may_not_enter_is_passed_by(open_node, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    plain_user = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    node = open_node(before=[*plain_user, "env", f"PATH={closed}:{os.environ['PATH']}"])
    assert node.run(Command(("no-such-program-anywhere",))).missing
    assert node.run(Command(("echo", "there"))).out == "there\n"


def test_streams_are_apart_and_as_they_were(node):
    answer = node.run(sh("printf 'a\\0b\\r\\n\\377'; echo oh >&2"))
    assert (answer.out, answer.err) == ("a\0b\r\n\ufffd", "oh\n")


def test_a_command_reads_nothing_where_nothing_was_given(node):
    assert node.run(Command(("cat",), timeout_seconds=5)).out == ""


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 3_000_000])
def test_stdin_arrives_whole(node, size):
    text = "0123456789" * (size // 10) + "x" * (size % 10)
    assert node.run(Command(("sha1sum",), stdin=text)).out[:40] == hashlib.sha1(text.encode()).hexdigest()


def test_a_large_stdin_that_nobody_reads_hinders_nothing(node):
    first, second = node.batch([Command(("true",), stdin="x" * 3_000_000), Command(("echo", "hi"))])
    assert (first.exit, second.out) == (0, "hi\n")


def test_a_command_does_not_inherit_an_ignored_sigpipe(node):
    assert node.run(sh("yes | head -1; exit ${PIPESTATUS:-0}")).out == "y\n"
    ignored = node.run(Command(("grep", "SigIgn", "/proc/self/status"))).out
    assert not int(ignored.split()[1], 16) & 1 << 12


@pytest.mark.parametrize("how", [{}, {"lane": "nvidia"}], ids=["spawned", "forked"])
def test_a_command_inherits_no_blocked_signal_and_no_stream_of_another(node, how):
    answers = node.batch(
        [sh(f"sleep 0.1; ls /proc/self/fd; grep SigBlk /proc/self/status; : {n}", **how) for n in (1, 2)]
    )
    for answer in answers:
        *descriptors, blocked = answer.out.splitlines()
        assert descriptors == ["0", "1", "2", "3"]  # ls itself reads the folder as 3
        assert int(blocked.split()[1], 16) == 0


OLDER = """\
#!/bin/sh
exec {python} "$1" "import os
{change}
$2" "$3"
"""


@pytest.mark.parametrize(
    "change",
    ["del os.posix_spawnp", "def refuse(*_, **__): raise NotImplementedError\nos.posix_spawnp = refuse"],
    ids=["Python 3.7", "glibc 2.17"],
)
def test_older_systems_start_commands_by_fork(open_node, tmp_path, change):
    python = tmp_path / "python"
    python.write_text(OLDER.format(python=sys.executable, change=change))
    python.chmod(0o755)
    node = open_node(python=str(python))
    first, missing = node.batch([sh("echo $PPID; exit 3"), Command(("no-such-program",))])
    assert (first.exit, missing.exit) == (3, 127)
    assert int(first.out) > 1


def test_what_hangs_is_killed_with_all_its_children(node, nap):
    answer = node.run(sh(f"sleep {nap} & (sleep {nap} & sleep {nap}); wait", timeout_seconds=0.5))
    assert answer.timed_out
    assert answer.exit == 137
    assert 0.5 <= answer.seconds < 5
    assert gone(nap)


def test_what_was_said_before_the_deadline_is_kept(node):
    answer = node.run(sh("echo half; sleep 60", timeout_seconds=0.5))
    assert (answer.out, answer.timed_out) == ("half\n", True)


def test_a_background_child_is_not_waited_for_and_not_left(node, nap):
    answer = node.run(sh(f"sleep {nap} & echo done", timeout_seconds=30))
    assert (answer.exit, answer.out, answer.timed_out) == (0, "done\n", False)
    assert answer.seconds < 5
    assert gone(nap)


def test_a_command_that_closes_its_streams_is_still_waited_for(node):
    assert node.run(sh("exec >&- 2>&-; sleep 0.5; exit 4", timeout_seconds=10)).exit == 4


def test_many_hang_at_the_same_time(node):
    began = time.monotonic()
    answers = node.batch([Command(("sleep", f"60.{n}"), timeout_seconds=1) for n in range(10)] + [sh("echo hi")])
    assert time.monotonic() - began < 6
    assert [a.timed_out for a in answers] == [True] * 10 + [False]


def test_more_than_its_width_are_all_answered(node):
    answers = node.batch([Command(("echo", str(n))) for n in range(50)])
    assert [a.out for a in answers] == [f"{n}\n" for n in range(50)]


def test_a_lane_runs_one_after_another_and_politely_and_others_side_by_side(node, tmp_path):
    log = tmp_path / "log"
    line = f"echo begin >>{log}; sleep 0.2; nice; echo end >>{log}"
    answers = node.batch([sh(line + f"; : {n}", lane="nvidia") for n in range(3)])
    assert log.read_text().split() == ["begin", "end"] * 3
    assert {int(a.out) for a in answers} == {min(19, os.nice(0) + 10)}
    log.write_text("")
    node.batch([sh(line + f"; : {n}") for n in range(3)])
    assert log.read_text().split()[:3] == ["begin"] * 3


def test_a_command_of_a_lane_sees_exactly_its_words(node):
    words = ("$HOME", "a b", "*", "'", "")
    answer = node.run(Command(("printf", "%s|", *words), lane="nvidia"))
    assert answer.out == "".join(f"{word}|" for word in words)


def test_a_program_that_hangs_is_not_asked_again_in_its_lane(node):
    hung = [Command(("sleep", f"60.{n}"), timeout_seconds=0.5, lane="nvidia") for n in range(3)]
    others = [Command(("echo", "hi"), lane="nvidia"), Command(("sleep", "0.01"), timeout_seconds=20)]
    first, *again, echo, outside = node.batch([*hung, *others])
    assert (first.timed_out, first.state) == (True, "")
    assert [(a.timed_out, a.not_asked, a.seconds) for a in again] == [(True, True, 0)] * 2
    assert (echo.out, outside.exit) == ("hi\n", 0)
    unknown = Probe("topo", again[0].question, lambda answer: answer.out, accepts=None).read(again[0])
    assert unknown.why == "sleep 60.1 was not run, because sleep hung before"


def test_a_shell_that_hangs_leaves_other_scripts_of_its_lane(node):
    hung, after = node.batch([sh("sleep 60", timeout_seconds=0.5, lane="nvidia"), sh("echo hi", lane="nvidia")])
    assert (hung.timed_out, after.out) == (True, "hi\n")


def test_a_flood_is_cut_and_its_command_ended(node, monkeypatch, nap):
    monkeypatch.setattr(agent, "OUTPUT_CAP_BYTES", 1_000_000)
    flood, other = node.batch([sh(f"yes {nap}", timeout_seconds=60), Command(("echo", "hi"))])
    assert flood.truncated
    assert 0 < len(flood.out) <= 1_000_000
    assert flood.seconds < 30
    assert other.out == "hi\n"
    assert gone(nap)


def test_eight_mebibytes_arrive_whole(node):
    answer = node.run(sh("yes 0123456789abcde | head -c 8388608", timeout_seconds=60))
    assert len(answer.out) == 8 * 1024 * 1024
    assert not answer.truncated
    assert hashlib.sha256(answer.out.encode()).digest() == hashlib.sha256(b"0123456789abcde\n" * 2**19).digest()
    assert node.run(sh("yes | head -c 8388609", timeout_seconds=60)).truncated


def test_a_command_stuck_in_the_kernel_is_told_with_its_state():
    namespace = {"MARK": "m", "__name__": "agent"}
    exec(SOURCE.replace("WATCHER = watch_over()\nserve(MARK)", ""), namespace)
    stopped = subprocess.Popen(["sleep", "60"])
    stopped.send_signal(19)
    for _ in range(100):
        if namespace["state_of"](stopped.pid) == "T":
            break
        time.sleep(0.02)
    assert namespace["state_of"](stopped.pid) == "T"
    job = namespace["Job"]({"lane": "", "seconds": 0.0})
    job.pid, job.killed_at, job.streams = stopped.pid, time.monotonic() - 2, {}
    assert job.check(time.monotonic())
    assert (job.status, job.state) == (137, "T")
    stopped.kill()
    stopped.wait()
    assert namespace["state_of"](stopped.pid) == "?"


def test_a_stuck_command_becomes_an_unknown_that_says_so(open_node, tmp_path):
    script = tmp_path / "agent.py"
    head = "import sys\nMARK=sys.argv[1]\n"
    script.write_text(head + SOURCE.replace("os.killpg(self.pid, _", "(_").replace("_of(self.pid)", "_of(1)"))
    node = open_node(before=())
    node._open_stream = lambda _: agent_stream(script, node._mark)
    probe = Probe("smi", Command(("sleep", "3.21"), timeout_seconds=0.2), parse=lambda a: a.out)
    read = probe.read(node.run(probe.question))
    assert read.why == "sleep 3.21 did not answer in 0.2 s, stuck in kernel state S"


def agent_stream(script, mark):
    from gpuops.transport.local import ProcessStream

    skip = "import sys;sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))"
    return ProcessStream("n1", [sys.executable, "-c", f"{skip};exec(open({str(script)!r}).read())", mark])


def test_a_kept_agent_answers_again_and_keeps_no_children(fresh_node):
    pids = set()
    for n in range(3):
        answers = fresh_node.batch([sh("echo $PPID"), Command(("wc", "-c"), stdin="x" * (100_000 + n))])
        pids.add(answers[0].out)
        assert answers[1].out.strip() == str(100_000 + n)
    assert len(pids) == 1
    zombies = sh(f"cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z {pids.pop().strip()} '")
    time.sleep(0.2)
    assert int(fresh_node.run(Command(("true",))).exit) == 0
    assert int(fresh_node.run(zombies).out) == 0


@pytest.mark.parametrize("way", ["close", "sigterm", "sighup"])
def test_hanging_up_ends_everything_within_a_second(fresh_node, nap, way):
    ended = []

    def work():
        try:
            fresh_node.batch(
                [sh(f"sleep {nap} & sleep {nap}"), sh(f"sleep {nap}", lane="nvidia"), Command(("sleep", nap))]
            )
        except LostError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(200):
        if len(alive(nap)) >= 4:
            break
        time.sleep(0.02)
    assert len(alive(nap)) >= 4
    began = time.monotonic()
    if way == "close":
        fresh_node.close()
    else:
        fresh_node._stream.stream._process.send_signal({"sigterm": 15, "sighup": 1}[way])
    assert gone(nap, seconds=2.0)
    assert time.monotonic() - began < 2.0
    thread.join(10)
    assert not thread.is_alive()
    assert ended


def test_a_closed_node_starts_nothing_more(fresh_node):
    fresh_node.close()
    fresh_node.close()
    with pytest.raises(LostError):
        fresh_node.run(Command(("echo", "hi")))


def test_files_are_read_as_they_lie(node, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one\0two\n\xff")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "file link").symlink_to("a.txt")
    (tmp_path / "dangling").symlink_to("nowhere")
    found = read_files(node.batch([Files((f"{tmp_path}/*", f"{tmp_path}/none"))])[0].out)
    assert found == {
        f"{tmp_path}/a.txt": "one two\n\ufffd",
        f"{tmp_path}/b.txt": "",
        f"{tmp_path}/folder": "",
        f"{tmp_path}/link": "folder",
        f"{tmp_path}/file link": "one two\n\ufffd",
    }


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*", ["ab", "abb", "b", "xaby"]),
        ("a*", ["ab", "abb"]),
        ("*b", ["ab", "abb", "b"]),
        ("a*b", ["ab", "abb"]),
        ("*a*b*", ["ab", "abb", "xaby"]),
        ("ab", ["ab"]),
        ("ab*ab", []),
        (".*", [".ab"]),
    ],
)
def test_a_glob_finds_what_a_shell_would_find(node, tmp_path, pattern, names):
    for name in ("ab", "abb", "b", "xaby", ".ab"):
        (tmp_path / name).write_text(name)
    found = read_files(node.batch([Files((f"{tmp_path}/{pattern}",))])[0].out)
    assert [pathlib.Path(path).name for path in found] == names
    shell = subprocess.run(
        ["bash", "-c", f"cd {tmp_path}; printf '%s\\n' {pattern}"], capture_output=True, text=True, check=True
    )
    assert [name for name in shell.stdout.split() if (tmp_path / name).is_file()] == names


def test_only_the_head_of_a_large_file_is_read(node, tmp_path):
    (tmp_path / "large").write_text("x" * 100_000)
    found = read_files(node.batch([Files((f"{tmp_path}/large",), limit_bytes=1000)])[0].out)
    assert found == {f"{tmp_path}/large": "x" * 1000}


def test_a_file_that_blocks_costs_its_own_question_only(node, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_text("\n7\n")
    pipe, plain, kind = f"{tmp_path}/pipe", f"{tmp_path}/plain", "/proc/sys/kernel/ostype"
    before, stuck, fine = node.batch([Files((plain,)), Files((plain, pipe), timeout_seconds=0.3), Files((kind,))])
    assert (stuck.timed_out, stuck.out) == (True, "")
    assert read_files(before.out) == {plain: "\n7\n"}
    assert read_files(fine.out) == {kind: "Linux\n"}


def test_a_question_about_too_much_costs_no_other_one_its_answer(node, tmp_path, monkeypatch):
    monkeypatch.setattr(agent, "OUTPUT_CAP_BYTES", 100_000)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name * 60_000)
    small, large = [Files((f"{tmp_path}/{pattern}",)) for pattern in ("a", "*")]
    first, second, third = node.batch([small, large, small])
    assert (first.truncated, second.truncated, third.truncated) == (False, True, False)
    assert read_files(first.out) == read_files(third.out) == {f"{tmp_path}/a": "a" * 60_000}


def test_files_of_many_questions_are_read_by_one_process(node):
    before, *_, after = node.batch([Files(("/proc/self/status",), timeout_seconds=n) for n in range(1, 20)])
    pids = [read_files(answer.out)["/proc/self/status"].split("Pid:")[1].split()[0] for answer in (before, after)]
    assert pids[0] == pids[1]


def test_an_unreadable_file_is_left_out(user_node, sudo):
    (sudo.folder / "secret").write_text("x")
    (sudo.folder / "secret").chmod(0)
    (sudo.folder / "plain").write_text("y")
    found = read_files(user_node().batch([Files((f"{sudo.folder}/secret", f"{sudo.folder}/plain"))])[0].out)
    assert found == {f"{sudo.folder}/plain": "y"}


def test_the_python_of_the_start_line_must_be_a_plain_path():
    from gpuops.errors import InputError

    for bad in ("python3; reboot", "$(id)", "a b", "'"):
        with pytest.raises(InputError, match="is not a plain path"):
            agent.start_line("m", bad)
    assert re.search(r"for p in /opt/py/bin/python3\.9 python3 ", agent.start_line("m", "/opt/py/bin/python3.9"))


def test_nothing_is_left_in_the_home_or_the_temporary_folder(open_node, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "put").mkdir()
    node = open_node(before=["env", "-C", f"{tmp_path}/home", f"HOME={tmp_path}/home", f"TMPDIR={tmp_path}/home"])
    node.batch([Command(("true",)), sh("sleep 9", timeout_seconds=0.2), Command(("cat",), stdin="x" * 200_000)])
    node.put(b"x", f"{tmp_path}/put/file", 0o600)
    node.close()
    assert not list((tmp_path / "home").iterdir())
    assert [path.name for path in (tmp_path / "put").iterdir()] == ["file"]


@pytest.mark.parametrize("lane", [pytest.param("", id="spawned"), pytest.param("nvidia", id="forked")])
def test_jobs_end_when_the_agent_is_killed(fresh_node, nap, lane):
    pid = int(fresh_node.run(sh("echo $PPID")).out)
    began = threading.Event()

    def run():
        with pytest.raises(LostError):
            fresh_node.run(sh(f"sleep {nap} & sleep {nap}", timeout_seconds=60, lane=lane))
        began.set()

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: len(sleeping(nap)) == 2)
    os.kill(pid, 9)
    wait_until(lambda: not sleeping(nap))
    thread.join(10)
    assert began.is_set()


def test_watcher_ends_with_the_agent(fresh_node):
    pid = fresh_node.run(sh("echo $PPID")).out.strip()
    (watcher,) = set(children(pid))
    fresh_node.close()
    wait_until(lambda: not pathlib.Path(f"/proc/{watcher}").exists())


def children(pid):
    """The children of a process that are there when no job runs."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", pid], capture_output=True, text=True, check=False).stdout
    return listed.split()


def sleeping(nap):
    """The processes that sleep for ``nap`` seconds."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.split(None, 1)[1] == f"sleep {nap}"]


def wait_until(is_so, seconds=10):
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)
