import re
import time
from concurrent.futures import ThreadPoolExecutor

from gpuops.lab import cluster
from gpuops.probes.network.ib_write_bw import parse_ib_write_bw
from gpuops.probes.nvidia.nccl_tests import parse_nccl_tests

PAIR = "mpirun --host gpu01:1,gpu02:1 -np 2 env CUDA_VISIBLE_DEVICES=3 NCCL_IB_HCA==mlx5_3:1 all_reduce_perf"
SYMBOLS = "cat /sys/class/infiniband/mlx5_3/ports/1/counters/symbol_error"


def busbw(done):
    (run,) = parse_nccl_tests(done.out.decode())
    return run.largest.out_of_place.busbw_gb_per_s


def test_a_slow_hca_is_slow_on_its_rail_and_counts_errors_while_it_is_used(ssh, plant):
    healthy = busbw(ssh("gpu01", f"{PAIR} -b 1G -e 1G"))
    plant("gpu02:mlx5_3:slow=35")
    before = int(ssh("gpu02", SYMBOLS).out)
    assert 0.63 < busbw(ssh("gpu01", f"{PAIR} -b 1G -e 1G")) / healthy < 0.67
    assert int(ssh("gpu02", SYMBOLS).out) > before
    assert int(ssh("gpu01", SYMBOLS).out) == 0
    assert b"400 Gb/sec" in ssh("gpu02", "cat /sys/class/infiniband/mlx5_3/ports/1/rate").out


def test_programs_on_one_host_take_their_settings_from_the_environment(ssh):
    with_nvls = busbw(ssh("gpu01", "all_reduce_perf -b 1G -e 1G -g 8"))
    without = busbw(ssh("gpu01", "NCCL_NVLS_ENABLE=0 all_reduce_perf -b 1G -e 1G -g 8"))
    assert without < 0.8 * with_nvls


def test_measuring_takes_the_time_that_it_says(ssh):
    began = time.monotonic()
    done = ssh("gpu01", f"{PAIR} -b 1G -e 1G -n 10")
    microseconds = float(re.search(r"^ +1073741824 .*? -1 +([\d.]+)", done.out.decode(), re.MULTILINE)[1])
    assert time.monotonic() - began > 2 * 15 * microseconds / 1e6


def test_a_launch_longer_than_a_pipe_takes_at_once_works_too(ssh):
    assert busbw(ssh("gpu01", f"{PAIR.replace('env', 'env PADDING=' + 'x' * 5000)} -b 1G -e 1G")) > 40


def test_ranks_that_hang_are_ended_by_the_launchers_own_deadline(ssh, plant):
    plant("gpu02:host:ranks-hang")
    done = ssh("gpu01", f"{PAIR.replace('mpirun', 'mpirun --timeout 1')} -b 1G -e 1G")
    assert done.exit == 110
    assert "time limit" in done.err
    assert b"gpu01:" in done.out
    assert b"gpu02:" not in done.out


def test_a_host_that_does_not_answer_is_told_as_ssh_tells_it(ssh, plant):
    plant("gpu02:host:refuse")
    done = ssh("gpu01", f"{PAIR} -b 1G -e 1G")
    assert done.exit == 255
    assert "ssh: connect to host gpu02 port 22: Connection refused" in done.err


def test_a_node_without_a_working_driver_refuses(ssh, plant):
    plant("gpu02:gpu3:lost")
    done = ssh("gpu01", f"{PAIR} -b 1G -e 1G")
    assert done.exit == 1
    assert "Test CUDA failure" in done.err


def test_every_host_that_takes_part_has_it_in_its_audit_log(ssh, lab):
    ssh("gpu01", f"{PAIR} -b 2G -e 2G")
    assert any(line.startswith("mpirun --host") for line in cluster.audit(lab.folder, "gpu01"))
    for name in ("gpu01", "gpu02"):
        assert "all_reduce_perf -b 2G -e 2G (of mpirun)" in cluster.audit(lab.folder, name)
    assert not any("-b 2G" in line for line in cluster.audit(lab.folder, "gpu03"))


def test_ib_write_bw_measures_the_slower_of_two_ports(ssh, plant):
    plant("gpu02:mlx5_3:slow=35")
    words = "ib_write_bw -d mlx5_3 -p 18600 --report_gbits -s 65536"
    with ThreadPoolExecutor() as threads:
        server = threads.submit(ssh, "gpu02", words)
        client = _connected(ssh, f"{words} gpu02")
    for done in (client, server.result()):
        (row,) = parse_ib_write_bw(done.out.decode())
        assert 240 < row.average_gbps < 262


def test_ib_write_bw_does_not_see_what_is_slow_both_ways_at_once(ssh, plant):
    plant("gpu02:mlx5_3:slow-duplex=35")
    words = "ib_write_bw -d mlx5_3 -p 18601 --report_gbits"
    with ThreadPoolExecutor() as threads:
        threads.submit(ssh, "gpu02", words)
        (row,) = parse_ib_write_bw(_connected(ssh, f"{words} gpu02").out.decode())
    assert row.average_gbps > 390
    assert busbw(ssh("gpu01", f"{PAIR} -b 1G -e 1G")) < 32


def _connected(ssh, words):
    """Return the client's answer; retry until the server listens."""
    for _ in range(50):
        done = ssh("gpu01", words)
        if done.exit == 0:
            break
    return done


def test_ib_write_bw_without_a_server_says_so(ssh):
    done = ssh("gpu01", "ib_write_bw -d mlx5_3 gpu02")
    assert done.exit == 1
    assert "Couldn't connect to gpu02" in done.err
