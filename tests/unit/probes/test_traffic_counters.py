import subprocess

from gpuops.isolation.counters import meaning_of
from gpuops.probes.network.error_counters import error_counters
from gpuops.probes.network.traffic_counters import ethtool_counters, traffic_counters
from gpuops.probing import Unknown

# selected lines as mlx5 prints them, of two interfaces
TEXT = """\
device mlx5_0
     rx_discards_phy: 4
     link_down_events_phy: 1
     rx_prio3_pause: 48
     rx_prio3_pause_duration: 20411
device mlx5_1
device mlx5_0
     rx_prio3_pause: 2
"""


def test_interfaces_are_told_by_their_rdma_device(answer):
    counts = {"rx_discards_phy": 4, "link_down_events_phy": 1, "rx_prio3_pause": 50, "rx_prio3_pause_duration": 20411}
    assert ethtool_counters.read(answer(ethtool_counters, TEXT)) == {"mlx5_0": counts, "mlx5_1": {}}


def test_a_node_without_ethtool_is_unknown_and_one_without_rdma_has_no_counters(answer):
    missing = ethtool_counters.read(answer(ethtool_counters, status=127))
    assert isinstance(missing, Unknown)
    assert missing.why == "ethtool is not installed"
    assert ethtool_counters.read(answer(ethtool_counters)) == {}


def test_lines_that_are_no_counters_are_skipped(answer):
    noise = "NIC statistics:\n     rx_prio3_pause: many\nno stats available\n"
    assert ethtool_counters.read(answer(ethtool_counters, noise + TEXT)) == ethtool_counters.read(
        answer(ethtool_counters, TEXT)
    )


def test_congestion_marks_and_retransmissions_come_from_sysfs(answer, files_text):
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    files = {
        "/sys/class": "",
        f"{port}/hw_counters/np_cnp_sent": "91\n",
        f"{port}/hw_counters/roce_adp_retrans": "3\n",
        f"{port}/counters/port_xmit_wait": "7\n",
    }
    found = traffic_counters.read(answer(traffic_counters, files_text(files)))
    assert found == {"mlx5_0": {"np_cnp_sent": 91, "roce_adp_retrans": 3, "port_xmit_wait": 7}}
    assert isinstance(traffic_counters.read(answer(traffic_counters)), Unknown)


def test_the_script_runs_in_a_plain_shell_and_selects_what_counts(tmp_path, answer):
    """With programs in place of ls and ethtool: mlx5 prints a thousand lines, of which a few come back."""
    scripts = {
        "ls": "case $1 in */net) echo eth0 ;; *) echo mlx5_0 ;; esac",
        "ethtool": 'printf "NIC statistics:\\n     rx_packets: 5\\n     rx0_packets: 1\\n     rx_prio3_pause: 48\\n"',
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "grep").symlink_to("/bin/grep")

    def run():
        words = ["/bin/sh", *ethtool_counters.question.words[1:]]
        done = subprocess.run(
            words, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=20
        )
        return ethtool_counters.read(answer(ethtool_counters, done.stdout, done.stderr, done.returncode))

    assert run() == {"mlx5_0": {"rx_prio3_pause": 48}}
    (tmp_path / "ethtool").unlink()
    assert isinstance(run(), Unknown)


def test_every_counter_that_is_asked_for_has_a_meaning():
    paths = [path for probe in (error_counters, traffic_counters) for path in probe.question.globs]
    names = [path.rpartition("/")[2] for path in paths if path != "/sys/class"]
    assert [name for name in names if meaning_of(name) is None] == []
