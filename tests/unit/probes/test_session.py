import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.host.session import Session, parse_session
from gpuops.probing import Unknown


def told(cgroup, comm="kthreadd\n"):
    return parse_session(f"/proc/2/comm\0{comm}\0/proc/self/cgroup\0{cgroup}\0")


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/user.slice/user-1000.slice/session-3.scope\n",
        "0::/user.slice/user-0.slice/user@0.service/app.slice\n",
        "12:devices:/user.slice\n1:name=systemd:/user.slice/user-1000.slice/session-c2.scope\n0::/\n",
        "0::/system.slice/ssh.service\n",
        "0::/system.slice/sshd@7-10.0.0.1:22.service\n",
        "4:devices:/\n0::/user.slice/user-1000.slice/session-3.scope\n",
    ],
)
def test_a_login_is_not_confined(cgroup):
    assert told(cgroup) == Session()


@pytest.mark.parametrize(
    ("cgroup", "comm", "confined"),
    [
        ("0::/\n", "bash\n", "a container"),
        ("0::/user.slice/user-0.slice\n", "", "a container"),
        ("0::/\n", "kthreadd\n", "a cgroup namespace"),
        (
            "0::/system.slice/slurmstepd.scope/job_42/step_extern\n",
            "kthreadd\n",
            "the cgroup /system.slice/slurmstepd.scope/job_42/step_extern",
        ),
        ("5:devices:/slurm/uid_1000/job_42\n0::/\n", "kthreadd\n", "the cgroup /slurm/uid_1000/job_42"),
        ("0::/kubepods.slice/kubepods-pod1.slice\n", "kthreadd\n", "the cgroup /kubepods.slice/kubepods-pod1.slice"),
    ],
)
def test_a_container_and_a_jobs_cgroup_confine(cgroup, comm, confined):
    assert told(cgroup, comm) == Session(confined)


def test_without_a_cgroup_it_is_unknown():
    assert isinstance(parse_session(""), Unknown)
    assert isinstance(told(""), Unknown)


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_session(text), (Session, Unknown))
