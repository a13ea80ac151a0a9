import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.network.roce import (
    FlowControl,
    NcclVariables,
    flow_control,
    nccl_variables,
    parse_flow_control,
    parse_nccl_variables,
    parse_roce,
    roce,
)
from gpuops.probing import Unknown

IB = "/sys/class/infiniband"


@pytest.fixture
def run_locally():
    """Return a function that runs a probe's command on this machine and returns what it prints."""
    return lambda question: subprocess.run(question.words, capture_output=True, text=True, check=True).stdout


def files(**content):
    paths = {"/sys/class": "", **content}
    return "".join(f"{path}\0{text}\0" for path, text in paths.items())


def test_settings_are_those_of_each_device():
    text = files(
        **{
            f"{IB}/mlx5_0/tc/1/traffic_class": "Global tclass=106\n",
            f"{IB}/mlx5_1/tc/1/traffic_class": "\n",
            **{f"{IB}/mlx5_0/device/net/eth0/ecn/roce_np/enable/{p}": f"{int(p == 3)}\n" for p in range(8)},
            **{f"{IB}/mlx5_0/device/net/eth0/ecn/roce_rp/enable/{p}": "0\n" for p in range(8)},
            f"{IB}/mlx5_0/device/net/eth0/ecn/roce_np/cnp_dscp": "48\n",
            "/sys/kernel/config/rdma_cm/mlx5_1/ports/1/default_roce_tos": "106\n",
        }
    )
    assert parse_roce(text) == {
        "mlx5_0": {
            "traffic class": "106",
            "ECN roce_np": "priority 3",
            "ECN roce_rp": "off",
            "DSCP of CNPs": "48",
        },
        "mlx5_1": {"traffic class": "not set", "rdma_cm tos": "106"},
    }


def test_no_device_is_no_setting_and_no_sys_is_unknown():
    assert parse_roce(files()) == {}
    assert isinstance(parse_roce(""), Unknown)


MLNX = """\
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0   \n\
\tbuffer      0   0   0   1   0   0   0   0   \n\
tc: 0 ratelimit: unlimited, tsa: ets, bw: 10%
\t priority:  1
"""
OLD = "Priority trust state: pcp\nPFC configuration:\n\tpriority 0 1 2 3 4 5 6 7\n\tenabled  0 0 0 0 0 0 0 0\n"
DCB = """\
pfc-cap 8 macsec-bypass off delay 0
prio-pfc 0:off 1:off 2:off 3:on 4:off 5:on 6:off 7:off
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (MLNX, FlowControl((3,), "dscp", dict.fromkeys(range(8), 0))),
        (OLD, FlowControl((), "pcp")),
        (DCB, FlowControl((3, 5))),
        ("no program\n", Unknown("neither mlnx_qos nor dcb is installed")),
    ],
)
def test_flow_control_of_either_tool(body, found):
    assert parse_flow_control(f"-- mlx5_0\n{body}-- end\n") == {"mlx5_0": found}


def test_flow_control_that_cannot_be_read_is_unknown_for_its_device_alone():
    found = parse_flow_control(f"-- mlx5_0\nInterface eth0 not found\n-- mlx5_1\n{OLD}-- end\n")
    assert "not found" in found["mlx5_0"].why
    assert found["mlx5_1"] == FlowControl((), "pcp")


@pytest.mark.parametrize("text", ["", "-- mlx5_0\n", f"-- mlx5_0\n{OLD}", "hello\n"])
def test_truncated_flow_control_is_unknown(text):
    assert isinstance(parse_flow_control(text), Unknown)
    assert parse_flow_control("-- end\n") == {}


def test_environment_of_the_session_wins_over_nccl_conf():
    text = "NCCL_IB_TC=0\nNCCL_IB_GID_INDEX=3\nNCCL_IB_TC=106\n-- end\n"
    assert parse_nccl_variables(text) == NcclVariables({"NCCL_IB_TC": "106", "NCCL_IB_GID_INDEX": "3"})
    assert isinstance(parse_nccl_variables("NCCL_IB_TC=0\n"), Unknown)


def test_rest_of_the_environment_is_never_asked_for(run_locally, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("NCCL_IB_TC", "106")
    answer = run_locally(nccl_variables.question)
    assert "hunter2" not in answer
    assert parse_nccl_variables(answer).values["NCCL_IB_TC"] == "106"


def test_scripts_run_on_a_machine_without_rdma(run_locally):
    assert parse_flow_control(run_locally(flow_control.question)) == {}


@given(st.text())
def test_any_text_gets_an_answer(text):
    for parse in (parse_roce, parse_flow_control, parse_nccl_variables):
        parse(text)
    assert roce.name == "roce"
