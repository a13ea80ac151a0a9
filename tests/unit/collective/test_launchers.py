import pytest

from gpuops.collective.preflight.launchers import AppContext, allocate, by_mpirun, by_srun


def part(address, processes=8, **settings):
    return AppContext(address, processes, ("/opt/all_reduce_perf", "-g", "1"), settings)


def after(words, option):
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_mpirun_starts_like_nodes_in_one_context_in_their_order():
    words = by_mpirun("/usr/bin/mpirun", [part("n2", A="1"), part("n1", A="1")], 41.6)
    assert after(words, "--host") == ["n2:8,n1:8"]
    assert after(words, "-np") == ["16"]
    assert after(words, "--timeout") == ["42"]
    assert words[-5:] == ("env", "A=1", "/opt/all_reduce_perf", "-g", "1")


def test_nodes_that_differ_have_contexts_of_their_own():
    words = by_mpirun("mpirun", [part("n1", A="1"), part("n2", A="1"), part("n3", A="2"), part("n4", A="1")], 40)
    assert after(words, "--host") == ["n1:8,n2:8", "n3:8", "n4:8"]
    assert words.count(":") == 2
    assert [word for word in words if word.startswith("A=")] == ["A=1", "A=2", "A=1"]


def test_what_a_node_is_called_stays_one_word():
    words = by_mpirun("mpirun", [part("n1; rm -rf /"), part("n2")], 40)
    assert after(words, "--host") == ["n1; rm -rf /:8,n2:8"]


def test_srun_is_a_step_beside_others_in_the_job_that_holds_the_nodes():
    words = by_srun("srun", [part("n1", A="1,2"), part("n2", A="1,2")], "77")
    assert {"--jobid=77", "--overlap", "--nodelist=n1,n2", "--nodes=2", "--ntasks-per-node=8"} <= set(words)
    assert words[-5:-3] == ("env", "A=1,2")


def test_srun_refuses_nodes_that_differ():
    with pytest.raises(LookupError, match="the same command everywhere"):
        by_srun("srun", [part("n1", A="1"), part("n2", A="2")], "77")


def test_the_job_that_holds_the_nodes_runs_nothing():
    assert {"--no-shell", "--exclusive", "--nodes=2", "--nodelist=n1,n2"} <= set(allocate("salloc", ["n1", "n2"]))
