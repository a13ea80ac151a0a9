"""What goes wrong on real nodes: each fault ends in a state and a message that say so, and a re-run heals it."""

import pytest

REPOSITORY = ("--tags", "repository")
LOCK = """\
import fcntl, time
file = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
time.sleep(60)
"""


@pytest.fixture(scope="module", autouse=True)
def waiting(new_node):
    """A run on a node where another dpkg is at work for a minute; it waits while the other tests run."""
    with new_node(2) as node:
        node.provision("node.yml", *REPOSITORY)
        node.seen.check_output("systemd-run --quiet python3 -c %s", LOCK)
        process = node.start("node.yml")
        yield node, process
        process.kill()
        process.communicate()


def test_no_route_to_the_repository(node):
    node.ip("route", "add", "unreachable", node.at(3))
    told = node.provision("node.yml", code=1)
    assert "cannot fetch a key from " in told
    assert "3bf863cc.pub: " in told
    assert "No route to host" in told
    node.ip("route", "delete", "unreachable", node.at(3))
    node.provision("node.yml", *REPOSITORY)
    node.seen.check_output("apt-get update")
    node.ip("route", "add", "unreachable", node.at(3))
    told = node.provision("node.yml", code=1)
    assert "E: Failed to fetch http" in told
    assert "No route to host" in told
    node.ip("route", "delete", "unreachable", node.at(3))
    assert "0 failed" in node.provision("node.yml", "--resume", node.last_run)


def test_a_key_that_is_not_the_expected_one_is_not_even_written(node):
    node.repository.publish(key="stranger")
    told = node.provision("node.yml", code=1)
    assert f"holds {node.repository.mirrors.keyring.fingerprint('stranger')}; expected" in told
    assert not node.seen.file("/etc/apt/keyrings/nvidia-cuda.asc").exists
    node.repository.publish()
    assert "0 failed" in node.provision("node.yml", *REPOSITORY)


def test_a_repository_that_another_user_signed(node):
    node.repository.publish(signed_by="stranger")
    assert "NO_PUBKEY" in node.provision("node.yml", code=1)
    node.repository.publish()
    assert "0 failed" in node.provision("node.yml", *REPOSITORY)


def test_a_package_that_no_repository_offers_yet(node):
    node.repository.publish(without="nvidia-driver-pinning-580.159*.deb")
    told = node.provision("node.yml", code=1)
    assert "no repository offers nvidia-driver-pinning-580.159.04: Unable to locate package" in told
    node.repository.publish()
    assert "0 failed" in node.provision("node.yml")


def test_a_module_that_was_not_built_although_its_package_was_installed(node):
    node.seen.check_output("apt-get update")
    told = node.provision("node.yml", "--skip-tags", "headers", code=1)
    assert "DKMS has not built nvidia 580.159.04" in told
    assert "/build: No such file or directory. Stop." in told
    assert node.seen.package("nvidia-open").is_installed
    assert "0 failed" in node.provision("node.yml")


def test_a_full_disk(node):
    node.provision("node.yml", *REPOSITORY)
    place = "/usr/local/cuda-13.0"
    node.seen.check_output(f"mkdir -p {place}; mount -t tmpfs -o size=64k tmpfs {place}")
    playbook = node.playbook("    - package: {names: [cuda-toolkit-13-0]}\n")
    told = node.provision(playbook, code=1)
    assert "No space left on device" in told
    node.seen.check_output(f"umount {place}")
    assert "0 failed" in node.provision(playbook)
    assert node.seen.package("cuda-toolkit-13-0").is_installed


def test_a_node_that_does_not_come_back_from_its_reboot(node):
    boot = node.boot_id
    playbook = node.playbook("    - reboot: {reason: driver}\n      timeout: 10\n")
    (node.folder / "unplugged").touch()
    told = node.provision(playbook, code=3)
    assert "1 unreachable" in told
    assert "s after a reboot; check its console or its BMC" in told
    (node.folder / "unplugged").unlink()
    node.wait_until(node.answers)
    assert "1 changed, 0 ok, 0 failed" in node.provision(playbook, "--resume", node.last_run)
    assert node.boot_id != boot
    assert (node.folder / "console").read_text().count("ended with") == 1


def test_a_fabric_manager_of_another_version_than_the_driver(node):
    text = (node.folder / "node.yml").read_text()
    right = "package_set: {names: [nvidia-open, nvidia-fabricmanager, libnvidia-nscq], version"
    assert right in text
    wrong = "package: {versions: {nvidia-open: 580.159.04-1, nvidia-fabricmanager: 580.173.02-1}}  # "
    (node.folder / "wrong.yml").write_text(text.replace(right, wrong))
    told = node.provision("wrong.yml", code=1)
    assert "did not take effect: start nvidia-fabricmanager.service (was failed, exit-code" in told
    assert "version 580.173.02 don't match with driver version 580.159.04." in told
    assert "0 failed" in node.provision("node.yml")
    assert node.seen.service("nvidia-fabricmanager").is_running


def test_a_lock_that_another_dpkg_holds_for_a_minute_is_waited_for(waiting):
    node, process = waiting
    assert "0 failed" in node.finish(process)
    assert max(line.get("seconds", 0) for line in node.journal) > 30
