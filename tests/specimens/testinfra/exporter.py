# As tests of Ansible roles for services have it: binary, settings, socket and service. The shape is that of
# molecule/default/tests/test_default.py in Ableton/ansible-role-prometheus-node-exporter and cloudweeb.monit.
import os

import testinfra.utils.ansible_runner

testinfra_hosts = testinfra.utils.ansible_runner.AnsibleRunner(os.environ["MOLECULE_INVENTORY_FILE"]).get_hosts("all")


def test_hosts_file(host):
    f = host.file("/etc/hosts")

    assert f.exists
    assert f.user == "root"
    assert f.group == "root"
    assert "localhost" in f.content.decode()


def test_binary(host):
    binary = host.file("/usr/bin/prometheus-node-exporter")

    assert binary.is_file
    assert binary.mode == 0o0755


def test_socket(host):
    assert host.socket("tcp://127.0.0.1:2812").is_listening


def test_other_socket(host):
    assert host.socket("tcp://127.0.0.1:2813").is_listening


def test_service(host):
    service = host.service("prometheus-node-exporter")

    assert service.is_enabled
    assert service.is_running
