"""What the script of each node asks of that node, and the lines before its launcher that are not followed."""

from dataclasses import replace

import pytest

from gpuops.collective.preflight import causes, node_causes
from gpuops.collective.preflight.diagnosis import StepLog
from gpuops.collective.preflight.job_environment import JobEnvironment
from gpuops.launching.plan import JobPlan, NodePlan, Seat
from gpuops.launching.scripts.checking import check_scripts
from gpuops.launching.scripts.reading import read_script
from gpuops.operations.jobs import command_of_scripts

NODES = ("n1", "n2", "n3")
START = "exec torchrun --nnodes=3 --nproc-per-node=2 --node-rank={} --master-addr=10.0.0.1 train.py\n"


def read(**lines_by_node):
    """Return the plan of three scripts, of which some have other lines in place of the start, and what is read."""
    nodes = [
        NodePlan(
            name,
            tuple(Seat(2 * at + k, k, k, f"GPU-{at}{k}", {}) for k in range(2)),
            f"static-{name}.sh",
            "set -e\n" + lines_by_node.get(name, "START").replace("START", START.format(at)),
        )
        for at, name in enumerate(NODES)
    ]
    plan = JobPlan("torchrun", "train", "dp=6", (("dp", 6),), "10.0.0.1", 29500, tuple(nodes), "/job")
    checked = check_scripts(plan)
    return command_of_scripts(plan, checked), checked


def found(command, **surveys):
    """Return what is in the way of ``command`` on nodes in good order but for their ``surveys``."""
    good = JobEnvironment("/opt/bin/torchrun", "3.11.2", "2.9.1", "2.27.7", open_files=4096, user="root")
    own = {name: surveys.get(name, good) for name in NODES}
    log = StepLog()
    log.add("environment", [*node_causes.environment(command, own), *node_causes.limits(command, own)])
    return [(",".join(cause.nodes), cause.why, cause.fix) for cause in log.causes]


def test_each_node_is_asked_about_the_program_and_the_launcher_of_its_own_script():
    command, checked = read(
        n2=START.format(1).replace("train", "other"), n3=START.format(2).replace("torchrun", "/opt/no/torchrun")
    )
    assert [command.on(name).files for name in NODES[:2]] == [("/job", "/job/train.py"), ("/job", "/job/other.py")]
    assert [command.on(name).program for name in NODES] == ["torchrun", "torchrun", "/opt/no/torchrun"]
    assert len(checked.unchecked) == 2
    missing = JobEnvironment("/opt/bin/torchrun", missing=("/job/other.py",))
    assert sorted(found(command, n2=missing, n3=JobEnvironment())) == [
        (
            "n2",
            "static-n2.sh:2: /job/other.py is not there",
            "put /job/other.py on these nodes, or name another one in static-n2.sh:2",
        ),
        (
            "n3",
            "static-n3.sh:2: /opt/no/torchrun was not found",
            "torchrun in place of /opt/no/torchrun in static-n3.sh:2",
        ),
    ]


def test_a_launcher_that_most_scripts_name_is_needed_on_every_node():
    command, _ = read()
    assert found(command, n2=JobEnvironment(), n3=JobEnvironment()) == [
        ("n2,n3", "torchrun was not found", "pip install torch==2.9.1   on these nodes")
    ]


def test_the_directory_of_cd_must_be_there_and_has_the_program():
    command, checked = read(n2="cd /srv && cd deep || exit 1\nSTART")
    assert (checked.unchecked, checked.causes) == ((), ())
    assert command.on("n2").files == ("/job", "/srv", "/srv/deep", "/srv/deep/train.py")
    missing = JobEnvironment("/opt/bin/torchrun", missing=("/srv", "/srv/deep", "/srv/deep/train.py"))
    assert found(command, n2=missing) == [
        ("n2", "static-n2.sh:2: /srv is not there", "put /srv on these nodes, or name another one in static-n2.sh:2")
    ]


@pytest.mark.parametrize("line", ['cd "$SCRATCH"', "mkdir -p /x && cd /x", "if [ -d /x ]; then cd /x; fi", "cd ~/x"])
def test_in_a_directory_that_is_not_known_no_program_is_missed(line):
    command, checked = read(n2=f"{line}\nSTART")
    assert command.on("n2").files == ("/job",)
    assert any(text.startswith("static-n2.sh:2: cd ") for text in checked.unchecked)


def test_a_program_that_only_a_run_shows_is_unchecked():
    command, checked = read(n2="exec $VENV/bin/" + START[5:].replace("train.py", "$HERE/train.py").format(1))
    assert (command.on("n2").program, command.on("n2").files) == ("bash", ("/job",))
    assert "static-n2.sh:2: $VENV/bin/torchrun is known only when it runs" in checked.unchecked
    assert "static-n2.sh:2: $HERE/train.py is known only when it runs" in checked.unchecked


def test_a_limit_of_open_files_below_what_the_ranks_need_is_the_line_to_remove():
    command, _ = read(n1="ulimit -Sn 64\nSTART", n3="ulimit -n 65536\nSTART")
    assert found(command, n3=JobEnvironment("/opt/bin/torchrun", open_files=64)) == [
        (
            "n1",
            "static-n1.sh:2: a process may open only 64 files, for a connection to each rank (262 needed)",
            "remove ulimit -Sn 64 from static-n1.sh:2",
        )
    ]


def test_a_limit_of_locked_memory_counts_with_rdma():
    command, _ = read(n1="ulimit -l 64\nSTART", n2="ulimit -l unlimited\nSTART")
    surveys = {"n1": JobEnvironment(), "n2": JobEnvironment(memlock_bytes=65536)}
    assert [cause.fix for cause in node_causes.memory(command, surveys, NODES)] == [
        "remove ulimit -l 64 from static-\x00node\x00.sh:2"
    ]


@pytest.mark.parametrize("condition", ["false &&", "true ||", "false && module load x &&"])
def test_a_launcher_that_never_runs_is_named(condition):
    _, checked = read(n3=f"{condition} START")
    never = " ".join(condition.split()[:2])
    (cause,) = checked.causes
    assert (cause.nodes, cause.why) == (
        ("n3",),
        f"static-\x00node\x00.sh:2: {never} keeps the job from starting, the plan says 2 ranks here",
    )
    assert cause.fix == f"remove {never} from static-\x00node\x00.sh:2"


@pytest.mark.parametrize(
    ("lines", "unread"),
    [
        ("module load cuda/12\n", ["2: module load cuda/12 is not followed"]),
        ("A=1 ./prepare --all --of=/x now\n", ["2: ./prepare --all --of=/x … is not followed"]),
        ("if grep -q x /f; then\n  ./tool\nfi\n", ["2: grep -q x … is not followed", "3: ./tool is not followed"]),
        ("[ -f /lock ] && exit 0\n", ["2: exit 0 … depends on a condition"]),
        ("[ -f /lock ] &&\n  exit 0\n", ["3: exit 0 … depends on a condition"]),
        ("[ -f /x ] || exit 1\n", ["2: exit 1 … depends on a condition"]),
        ("cd /job || exit 1\n", []),
        ("cd /job || { echo no; exit 1; }\n", []),
        ("ulimit -v 1000\n", ["2: ulimit -v 1000 is not followed"]),
        ("ulimit -c 0\n", []),
        ("args=(--lr 1\n  --depth 2\n)\nargs+=(./x)\n", []),
        ("case $X in\na) ./tool ;;\nesac\n", ["3: ./tool is not followed"]),
        ("f() {\n  ./tool\n}\nf\n", ["3: ./tool is not followed", "5: f is not followed"]),
        ("function g {\n  echo\n}\n", []),
        ("(cd /tmp && ./tool)\n", ["2: ./tool is not followed"]),
        ("set -u; umask 022; trap 'kill 0' EXIT\necho 'starts'; hostname; export A=1; B=2; exec >log 2>&1\n", []),
    ],
)
def test_lines_before_the_launcher_that_are_not_understood_are_unread(lines, unread):
    script = read_script("s.sh", f"set -e\n{lines}torchrun train.py\n./after\n")
    assert script.start
    assert list(script.unread) == [f"s.sh:{text}" for text in unread]


def test_no_option_of_a_script_is_the_fix_of_a_node_with_too_few_gpus():
    command, _ = read()
    command = replace(command, launch="D")
    instead = "to use spares: gpuops place --replace n2,n3 --of D"
    one = f"repair the node, or render the files again for the GPUs that it has; {instead}"
    found = causes.processes(command, {"n1": 2, "n2": 1, "n3": 0})
    assert [(cause.nodes, cause.why, cause.fix) for cause in found] == [
        (("n2",), "the plan starts 2 ranks here, for 1 GPU", one),
        (("n3",), "the plan starts 2 ranks here, for 0 GPUs", one),
    ]
