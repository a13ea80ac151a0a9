"""The system under the GPUs: PCIe, IOMMU, clocks, time, persistence, Slurm."""

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

ON = {"ActiveState": "active", "UnitFileState": "enabled"}
GPU = """\
<nvidia_smi_log><attached_gpus>1</attached_gpus>
<gpu id="00000000:1B:00.0"><persistence_mode>{}</persistence_mode></gpu></nvidia_smi_log>
"""


def test_persistence_is_the_daemons_and_every_gpu_says_so(node, look, apply):
    node.unit("nvidia-persistenced")
    node.answers["nvidia-smi -q -x"] = GPU.format("Enabled")
    apply(node, "persistence")
    drop_in = node.files["/etc/systemd/system/nvidia-persistenced.service.d/50-gpuops.conf"]
    assert drop_in.splitlines()[1:] == [
        "ExecStart=",
        "ExecStart=/usr/bin/nvidia-persistenced --user root --persistence-mode --verbose",
    ]
    assert node.units["nvidia-persistenced.service"] == ON
    node.answers["nvidia-smi -q -x"] = GPU.format("Disabled")
    (change,) = look(node, "persistence").changes
    assert change.what == "restart nvidia-persistenced (off on gpu0)"


ACS = "\tACSCtl:\tSrcValid{0} TransBlk- ReqRedir{0} CmpltRedir{0} UpstreamFwd{0}\n"


@pytest.fixture
def bridged(node):
    node.offer("pciutils=3.9-1")
    node.answers["lspci -vvv"] = ACS.format("+")
    return node


def test_access_control_goes_off_at_every_boot(bridged, look, apply):
    assert "PCIe access control off, now" in [change.what for change in look(bridged, "acs").changes]
    bridged.answers["lspci -vvv"] = ACS.format("-")
    apply(bridged, "acs")
    assert "ECAP_ACS+0x6.w=0000" in bridged.files["/usr/local/lib/gpuops/acs.sh"]
    bridged.answers["lspci -vvv"] = ACS.format("+")
    assert [change.what for change in look(bridged, "acs").changes] == ["PCIe access control off, now"]


def test_access_control_that_keeps_guests_apart_stays(bridged, look):
    bridged.files["/sys/bus/pci/drivers/vfio-pci/0000:1b:00.0"] = ""
    found = look(bridged, "acs")
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_a_guest_cannot_set_access_control(bridged, look):
    bridged.files["/sys/class/dmi/id/product_name"] = "KVM\n"
    assert look(bridged, "acs").changes == []


@pytest.mark.parametrize(
    ("vendor", "mode", "words"),
    [
        ("GenuineIntel", "passthrough", "intel_iommu=on iommu=pt"),
        ("GenuineIntel", "off", "intel_iommu=off"),
        ("AuthenticAMD", "passthrough", "iommu=pt"),
        ("AuthenticAMD", "off", "amd_iommu=off"),
        ("ARM", "passthrough", "iommu.passthrough=1"),
    ],
)
def test_the_iommu_is_told_in_the_words_of_the_processors_maker(node, look, vendor, mode, words):
    node.files["/proc/cpuinfo"] = f"processor : 0\nvendor_id : {vendor}\n"
    node.answers["grubby"] = 'args="ro quiet"\n'
    command = str(look(node, "iommu", mode=mode).changes[0].command)
    assert command.startswith("grubby --update-kernel=ALL")
    assert f"--args={words}" in command.replace("'", "")


CPU = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_{}"


def test_all_processors_get_the_governor(node, apply, look):
    for number, governor in enumerate(("performance", "powersave")):
        node.files[CPU.format(number, "governor")] = f"{governor}\n"
        node.files[CPU.format(number, "available_governors")] = "performance powersave\n"
    assert "clock of the processors, now" in [change.what for change in look(node, "cpu_governor").changes]
    node.files[CPU.format(1, "governor")] = "performance\n"
    apply(node, "cpu_governor")
    assert 'echo performance >"$file"' in node.files["/usr/local/lib/gpuops/cpu-governor.sh"]
    assert isinstance(look(node, "cpu_governor", governor="schedutil").stop, Failed)


def test_a_node_without_governors_stays_as_it_is(node, look):
    assert look(node, "cpu_governor").changes == []


def test_chrony_asks_the_sites_servers_alone(node, apply):
    node.offer("chrony=4.5-1")
    node.unit("chrony")
    apply(node, "time_sync", servers=["ntp1.example", "10.0.0.1"])
    conf = "server ntp1.example iburst prefer\nserver 10.0.0.1 iburst prefer\n"
    assert node.files["/etc/chrony/conf.d/gpuops.conf"] == conf
    assert node.units["chrony.service"] == ON
    assert apply(node, "time_sync", servers=["ntp1.example", "10.0.0.1"]) == []


@pytest.mark.parametrize("node", ["rocky 8.10"], indirect=True)
def test_on_red_hat_the_servers_are_a_block_of_its_one_file(node, apply):
    node.offer("chrony=4.5-1.el8")
    node.unit("chronyd")
    node.files["/etc/chrony.conf"] = "pool 2.rocky.pool.ntp.org iburst\n"
    apply(node, "time_sync", servers=["ntp1"])
    lines = node.files["/etc/chrony.conf"].splitlines()
    assert lines[0] == "pool 2.rocky.pool.ntp.org iburst"
    assert "server ntp1 iburst prefer" in lines
    assert node.units["chronyd.service"] == ON


@pytest.fixture
def slurm(node):
    node.offer("munge=0.5-1", "slurmd=24.05-1")
    node.unit("munge", "slurmd")
    return node


@pytest.mark.parametrize(
    ("node", "path"), [("ubuntu 22.04", "/etc/default/slurmd"), ("rocky 8.10", "/etc/sysconfig/slurmd")],
    indirect=["node"],
)  # fmt: skip
def test_slurmd_fetches_its_configuration_and_starts_behind_the_gpus(slurm, apply, path):
    apply(slurm, "slurm_node", conf_server="ctl01")
    assert slurm.files[path] == 'SLURMD_OPTIONS="--conf-server ctl01"\n'
    after = slurm.files["/etc/systemd/system/slurmd.service.d/50-gpuops-after.conf"]
    assert "nvidia-persistenced.service" in after
    assert "LimitMEMLOCK=infinity" in slurm.files["/etc/systemd/system/slurmd.service.d/50-gpuops-memlock.conf"]
    assert [slurm.units[f"{name}.service"] for name in ("munge", "slurmd")] == [ON, ON]
    assert "/etc/slurm/gres.conf" not in slurm.files
    assert apply(slurm, "slurm_node", conf_server="ctl01") == []


def test_a_configuration_and_a_key_of_ones_own_are_brought(slurm, look, tmp_path):
    conf, key = tmp_path / "slurm.conf", tmp_path / "munge.key"
    conf.write_text("ClusterName=lab\n")
    key.write_bytes(b"\xff\x00secret")
    key.chmod(0o600)
    slurm.answers["sha256sum"] = ""
    slurm.answers["sh -c"] = (0, "", "No such file or directory")
    found = look(slurm, "slurm_node", slurm_conf=str(conf), munge_key=str(key))
    told = " ".join(change.what for change in found.changes)
    assert "/etc/slurm/slurm.conf" in told
    assert "/etc/slurm/gres.conf" in told
    assert "/etc/munge/munge.key" in told
    assert "secret" not in "".join(f"{change.what}{change.before}{change.after}" for change in found.changes)


@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        ("slurm_node", {}),
        ("slurm_node", {"conf_server": "a b"}),
        ("time_sync", {"servers": ["a\nb"]}),
        ("cpu_governor", {"governor": "a b"}),
        ("iommu", {"mode": "x"}),
    ],
)
def test_wrong_parameters_are_refused(node, look, task, wrong):
    with pytest.raises(DocumentError, match=task):
        look(node, task, **wrong)
