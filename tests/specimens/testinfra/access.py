# As tests of Ansible roles for SSH and for worker nodes have it: the lines of Molecule, packages by version and
# distribution. The shape is that of molecule/default/tests/test_default.py in Blunix-GmbH/role-ssh and
# CLIP-HPC/ansible-role-workernode.
import os

import pytest
import testinfra.utils.ansible_runner

testinfra_hosts = testinfra.utils.ansible_runner.AnsibleRunner(os.environ["MOLECULE_INVENTORY_FILE"]).get_hosts("all")


def test_package(host):
    assert host.package("openssh-server").is_installed


def test_release(host):
    assert host.system_info.type == "linux"
    assert host.system_info.distribution in ["debian", "ubuntu"]


def test_version(host):
    package = host.package("openssh-server")
    assert package.is_installed
    assert package.version.startswith("0:")


@pytest.mark.parametrize(
    "name",
    [
        ("/etc/passwd"),
        ("/etc/profile.d/gridenv.sh"),
    ],
)
def test_files(host, name):
    assert host.file(name).exists
