"""The check roce-settings on a lab whose rails are Ethernet, from mlnx_qos and /sys to the finding."""

import json
import subprocess
import sys


def test_port_with_the_settings_of_a_new_adapter_is_named(lab, plant, tmp_path):
    plant(*(f"{host}:host:roce" for host in lab.hosts), "gpu02:mlx5_3:roce-reset")
    command = [sys.executable, "-m", "gpuops", "validate", "--only", "roce-settings", "--json"]
    words = [*command, "-i", lab.folder / "inventory.yml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    hosts = json.loads(done.stdout)["hosts"]
    assert {name: host["status"] for name, host in hosts.items()} == {"gpu01": "pass", "gpu02": "fail", "gpu03": "pass"}
    (finding,) = hosts["gpu02"]["findings"]
    assert finding["part"] == "mlx5_3"
    assert {"PFC off", "trust pcp", "traffic class not set"} <= set(finding["measured"].split(", "))
