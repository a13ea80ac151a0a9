import pytest


@pytest.mark.parametrize("version", ["580.126.20", "580.126.20-1ubuntu1"])
def test_what_the_distribution_puts_round_a_version_is_found(node, apply, version):
    node.offer("a=580.95.05-1ubuntu1", "a=580.126.20-1ubuntu1", "a=580.126.2-1", b="1:580.126.20-1ubuntu1")
    apply(node, "package_set", names=["a", "b"], version=version)
    assert node.installed == {"a": "580.126.20-1ubuntu1", "b": "1:580.126.20-1ubuntu1"}
    assert node.held == {"a", "b"}


def test_the_newest_packaging_of_a_version_is_taken_and_an_older_one_stays(node, apply):
    node.offer("a=1.2-1", "a=1.2-2")
    apply(node, "package_set", names=["a"], version="1.2")
    assert node.installed == {"a": "1.2-2"}
    node.installed["a"] = "1.2-1"
    assert apply(node, "package_set", names=["a"], version="1.2") == []


def test_a_held_package_goes_down_with_the_others_in_one_transaction(node, apply):
    node.offer("a=1-1", "a=2-1", "b=1-1", "b=2-1")
    apply(node, "package_set", names=["a", "b"], version="2")
    assert apply(node, "package_set", names=["a", "b"], version="1") == ["install a=1-1, b=1-1"]
    assert node.held == {"a", "b"}
    assert "--allow-downgrades --allow-change-held-packages install -- a=1-1 b=1-1" in node.done[-1]


def test_it_tells_whether_all_were_there(node, look, apply):
    node.offer(a="1-1")
    assert look(node, "package_set", names=["a"], version="1").value is False
    apply(node, "package_set", names=["a"], version="1")
    assert look(node, "package_set", names=["a"], version="1").value is True


def test_a_version_that_nobody_offers_is_told_by_its_name(node, look):
    node.offer(a="1-1")
    found = look(node, "package_set", names=["a"], version="9")
    assert any("no repository offers a=9" in later.why for later in found.later)


@pytest.mark.parametrize("node", ["rhel 9.4"], indirect=True)
def test_dnf_is_told_the_bare_version_and_locks_what_came(node, apply):
    node.offer("nvidia-open=580.126.20-1.el9", "python3-dnf-plugin-versionlock=4-1")
    apply(node, "package_set", names=["nvidia-open"], version="580.126.20")
    assert node.done[0].endswith("install -- nvidia-open-580.126.20")
    assert node.files["/etc/dnf/plugins/versionlock.list"] == "nvidia-open-3:580.126.20-1.el9.*\n"
    assert apply(node, "package_set", names=["nvidia-open"], version="580.126.20") == []
