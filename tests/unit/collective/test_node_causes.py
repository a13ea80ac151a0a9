import pytest

from gpuops.collective.preflight import node_causes
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.job_environment import ClosedPath, JobEnvironment
from gpuops.collective.preflight.launch_command import LaunchCommand, read_command

TORCHRUN = LaunchCommand("torchrun", "torchrun", rendezvous="--rdzv-endpoint={master}:{port}")
MPIRUN = LaunchCommand("mpirun", "./train")
GOOD = JobEnvironment("/opt/bin/torchrun", "3.11.2", "2.9.1", "2.27.7")


def test_equal_nodes_are_not_in_the_way():
    assert not list(node_causes.environment(TORCHRUN, {"a": GOOD, "b": GOOD}))


def test_a_program_that_is_missing_is_told_with_where_it_is():
    (cause,) = node_causes.environment(TORCHRUN, {"a": GOOD, "b": JobEnvironment()})
    assert cause == Cause("environment", ("b",), "torchrun was not found", "pip install torch==2.9.1   on these nodes")
    (cause,) = node_causes.environment(TORCHRUN, {"a": JobEnvironment(), "b": JobEnvironment()})
    assert (cause.nodes, cause.fix) == (("a", "b"), "pip install torch   on these nodes, or give its full path")


@pytest.mark.parametrize(
    ("program", "fix"),
    [
        ("/opt/bin/torchrun", "pip install torch   on these nodes, or name a path that they have"),
        ("./train", "put ./train on these nodes, or name a path that they have"),
        ("train", "put train on these nodes, or give its full path"),
    ],
)
def test_the_full_path_is_not_asked_for_where_it_is_given(program, fix):
    (cause,) = node_causes.environment(LaunchCommand("mpirun", program), {"a": JobEnvironment()})
    assert cause.fix == fix


def test_the_node_with_another_version_is_named():
    other = JobEnvironment("/opt/bin/torchrun", "3.11.2", "2.9.1", "2.18.3")
    (cause,) = node_causes.environment(TORCHRUN, {"a": GOOD, "b": other, "c": GOOD})
    assert cause.nodes == ("b",)
    assert cause.why == "NCCL is 2.18.3 here and 2.27.7 on the others"
    assert "==2.27.7" in cause.fix


def test_a_python_without_torch_is_told_where_torch_is_needed():
    bare = JobEnvironment("/opt/bin/torchrun", "3.11.2", trouble="ModuleNotFoundError: No module named 'torch'")
    (cause,) = node_causes.environment(TORCHRUN, {"a": GOOD, "b": bare})
    assert cause.nodes == ("b",)
    assert "No module named 'torch'" in cause.why
    assert cause.fix == "pip install torch==2.9.1   on this node"
    (cause,) = node_causes.environment(TORCHRUN, {"a": bare, "b": bare})
    assert (cause.nodes, cause.fix) == (("a", "b"), "pip install torch   on these nodes")
    assert not list(node_causes.environment(MPIRUN, {"a": bare}))


def test_memory_counts_where_there_is_rdma():
    surveys = {
        "a": JobEnvironment(memlock_bytes=65536),
        "b": JobEnvironment(memlock_bytes=65536),
        "c": JobEnvironment(),
    }
    (cause,) = node_causes.memory(TORCHRUN, surveys, ["a", "c"])
    assert (cause.nodes, cause.why) == (("a",), "the job can lock only 64 KiB of memory")


@pytest.mark.parametrize(
    ("words", "own", "why"),
    [
        ("torchrun --nproc-per-node=8 t.py", {"shm_bytes": 64 << 20}, "/dev/shm, which has 64 MiB"),
        ("torchrun t.py", {"shm_bytes": 64 << 20}, "/dev/shm, which has 64 MiB"),  # as many as there are GPUs
        ("torchrun --nproc-per-node=1 t.py", {"shm_bytes": 64 << 20}, None),
        ("torchrun --nproc-per-node=8 t.py", {"shm_bytes": 16 << 30, "open_files": 1024}, None),
        ("torchrun --nproc-per-node=8 t.py", {"open_files": 200}, "only 200 files, for a connection to each rank (272"),
        ("torchrun --nproc-per-node=400 t.py", {"open_files": 1024}, "only 1024 files"),
        ("torchrun --nproc-per-node=8 t.py", {}, None),  # not known
    ],
)
def test_limits_that_ranks_run_into_are_named(words, own, why):
    surveys = {"n1": JobEnvironment(**own), "n2": JobEnvironment(shm_bytes=32 << 30, open_files=1 << 20)}
    found = list(node_causes.limits(read_command(words.split(), str, {}), surveys))
    assert [cause.nodes for cause in found] == ([("n1",)] if why else [])
    assert why is None or why in found[0].why


def test_a_launcher_that_is_missing_comes_in_the_version_of_the_others():
    cuda = JobEnvironment("/opt/bin/torchrun", "3.11.2", "2.9.1+cu130", "2.27.7")
    (cause,) = node_causes.environment(TORCHRUN, {"a": cuda, "b": JobEnvironment(), "c": cuda})
    assert cause == Cause("environment", ("b",), "torchrun was not found", "pip install torch==2.9.1   on these nodes")


def test_a_program_without_the_right_to_run_is_given_it():
    closed = JobEnvironment(not_executable="/job/a b")
    (cause,) = node_causes.environment(MPIRUN, {"a": JobEnvironment("/job/a b"), "b": closed})
    assert cause == Cause("environment", ("b",), "/job/a b is not executable", "chmod +x '/job/a b'   on these nodes")


@pytest.mark.parametrize(
    ("path", "owner", "why", "fix"),
    [
        ("/job/a b", "ann", "ann may not read /job/a b", "chmod u+r '/job/a b'   on these nodes"),
        ("/job", "ann", "ann may not enter /job", "chmod u+x /job   on these nodes"),
        (
            "/job",
            "root",
            "ann may not enter /job, which belongs to root",
            "chmod a+x /job   on these nodes, as root",
        ),
        ("/t.py", "", "ann may not read /t.py", "chmod u+r /t.py   on these nodes"),
    ],
)
def test_what_the_user_may_not_read_or_enter_is_opened_by_its_owner(path, owner, why, fix):
    closed = ClosedPath(path, owner, is_directory=path == "/job")
    barred = JobEnvironment("/x", user="ann", closed=(closed,))
    surveys = {"a": JobEnvironment("/x", user="ann"), "b": barred, "c": barred}
    assert list(node_causes.environment(MPIRUN, surveys)) == [Cause("environment", ("b", "c"), why, fix)]


def test_a_file_that_is_another_one_is_named_with_a_node_that_has_the_usual_one():
    one, other = JobEnvironment("/x", checksums={"/t.py": "1 9"}), JobEnvironment("/x", checksums={"/t.py": "2 9"})
    (cause,) = node_causes.environment(MPIRUN, {"a": other, "b": one, "c": one})
    fix = "put /t.py of b on these nodes"
    assert cause == Cause("environment", ("a",), "/t.py has another content here than on b", fix)
    assert not list(node_causes.environment(MPIRUN, {"a": one, "b": one, "c": JobEnvironment("/x")}))


def test_what_a_missing_directory_holds_is_not_named_too():
    bare = JobEnvironment("/x", missing=("/job/train.py", "/job"))
    (cause,) = node_causes.environment(MPIRUN, {"a": bare, "b": JobEnvironment("/x")})
    assert cause.why == "/job is not there"


@pytest.mark.parametrize(
    ("odd", "usual", "fix"),
    [
        ("2.9.0", "2.9.1", "pip install torch==2.9.1   on these nodes"),
        ("2.9.0+cu128", "2.9.1+cu130", "pip install torch==2.9.1   on these nodes"),
        (
            "2.9.1+cu128",
            "2.9.1+cu130",
            "pip install torch==2.9.1   on these nodes, from the index of its builds for cu130",
        ),
    ],
)
def test_a_version_of_torch_is_one_that_pip_knows(odd, usual, fix):
    surveys = {name: JobEnvironment("/x", "3.11.2", usual) for name in "bc"}
    (cause,) = node_causes.environment(TORCHRUN, {"a": JobEnvironment("/x", "3.11.2", odd), **surveys})
    assert (cause.nodes, cause.fix) == (("a",), fix)


def test_nccl_is_installed_for_the_cuda_of_torch_and_is_no_fault_of_its_own_beside_another_torch():
    def own(torch, nccl):
        return JobEnvironment("/x", "3.11.2", torch, nccl)

    usual = own("2.9.1+cu130", "2.27.7")
    (cause,) = node_causes.environment(TORCHRUN, {"a": own("2.9.1+cu130", "2.27.5"), "b": usual, "c": usual})
    assert cause.fix == "pip install nvidia-nccl-cu13==2.27.7   on these nodes"
    (cause,) = node_causes.environment(TORCHRUN, {"a": own("2.8.0+cu128", "2.26.2"), "b": usual, "c": usual})
    assert cause.why.startswith("torch is 2.8.0")


def test_the_line_that_raises_a_limit_counts_for_the_user_of_the_job():
    surveys = {"a": JobEnvironment(open_files=99, user="root"), "b": JobEnvironment(open_files=99, user="ada")}
    lines = {
        cause.nodes: cause.fix for cause in node_causes.limits(read_command(["torchrun", "t.py"], str, {}), surveys)
    }
    assert lines[("a",)].startswith("root - nofile 1048576   in /etc/security/limits.d/nofile.conf ")
    assert lines[("b",)].startswith("* - nofile ")
    (cause,) = node_causes.memory(TORCHRUN, {"a": JobEnvironment(memlock_bytes=1, user="root")}, ["a"])
    assert cause.fix.startswith("root - memlock unlimited ")


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"shm_bytes": 16 << 30, "shm_free_bytes": 5 << 20}, "of which only 5 MiB are free"),
        ({"shm_bytes": 16 << 20, "shm_free_bytes": 5 << 20}, "which has 16 MiB"),
        ({"temporary": "/tmp", "temporary_free_bytes": 4096}, "no space is left in /tmp"),
        ({"temporary": "/tmp", "temporary_free_bytes": 2 << 20}, ""),
        ({"temporary": "/tmp", "temporary_free_bytes": None}, ""),
        ({"shm_bytes": 16 << 30, "shm_free_bytes": 1 << 30}, ""),
    ],
)
def test_memory_and_temporary_files_need_space_that_is_free(own, why):
    surveys = {"a": JobEnvironment(**own), "b": JobEnvironment(shm_bytes=1 << 34, shm_free_bytes=1 << 34)}
    found = list(node_causes.limits(read_command(["torchrun", "t.py"], str, {}), surveys))
    assert [cause.nodes for cause in found] == ([("a",)] if why else [])
    assert why in "".join(cause.why for cause in found)


def test_a_working_directory_that_is_missing_is_named_by_its_option_and_hides_what_is_in_it():
    job = LaunchCommand("launch", "python3", folder="/srv/job", files=("/srv/job", "/srv/job/a.py"))
    lacking = JobEnvironment("/usr/bin/python3", missing=("/srv/job", "/srv/job/a.py"))
    partly = JobEnvironment("/usr/bin/python3", missing=("/srv/job/a.py",))
    folder, script = node_causes.environment(job, {"a": lacking, "b": partly, "c": lacking})
    fix = "put /srv/job on these nodes, or name one that all have with --workdir"
    assert folder == Cause("environment", ("a", "c"), "the working directory /srv/job is not there", fix)
    assert (script.nodes, script.why) == (("b",), "/srv/job/a.py is not there")
