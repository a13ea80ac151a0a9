from gpuops.probes.network.error_counters import error_counters
from gpuops.probing import Unknown

IB = "/sys/class/infiniband/mlx5_0/ports"


def read(answer, text):
    return error_counters.read(answer(error_counters, text))


def test_errors_are_told_by_device_over_all_of_its_ports(answer, files_text):
    found = read(
        answer,
        files_text(
            {
                "/sys/class": "",
                f"{IB}/1/counters/symbol_error": "412\n",
                f"{IB}/2/counters/symbol_error": "3\n",
                f"{IB}/1/hw_counters/local_ack_timeout_err": "0\n",
                "/sys/class/net/eth0/statistics/rx_errors": "7\n",
                "/sys/class/net/eth0/statistics/tx_errors": "N/A\n",
            }
        ),
    )
    assert found == {"mlx5_0": {"symbol_error": 415, "local_ack_timeout_err": 0}, "eth0": {"rx_errors": 7}}


def test_no_device_is_an_answer_and_no_sys_is_none(answer, files_text):
    assert read(answer, files_text({"/sys/class": ""})) == {}
    assert isinstance(read(answer, ""), Unknown)
