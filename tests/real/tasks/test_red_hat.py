"""The tasks' paths for RHEL and Rocky with a real dnf, which Debian and Ubuntu have too, and stand-in packages."""

import os

import pytest

KEY = "/etc/pki/rpm-gpg/RPM-GPG-KEY-lab"
# What makes the jail one that RPM rules: dpkg and apt are out of the way, and rpm keeps its list where RHEL does.
BECOME_RED_HAT = """\
set -e; export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq -y --no-install-recommends dnf dnf-plugins-core rpm createrepo-c gnupg >/dev/null
for program in apt-get apt-mark dpkg dpkg-query; do mv /usr/bin/$program /usr/bin/$program.away; done
mkdir -p /etc/rpm /etc/dnf/vars /root/build /srv/lab
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros; rpm --initdb; chmod -R a+rX /var/lib/rpm
echo 9 >/etc/dnf/vars/releasever; printf '[main]\nenabled=0\n' >/etc/dnf/plugins/local.conf
"""
BUILD = """\
set -e; cd /root/build; gpg="gpg --batch --quiet --homedir /root/build"; chmod 700 .
$gpg --passphrase '' --quick-gen-key lab@example.com rsa2048 sign never 2>/dev/null
$gpg --armor --export >/srv/lab/key; mkdir -p /srv/bare
for name in gpuops-lab python3-dnf-plugin-versionlock; do for version in 1.0 2.0; do
    printf '%s: %s\n' Name $name Version $version Release 1.el9 Epoch 3 Summary x License x BuildArch noarch >spec
    printf '%%description\nx\n%%files\n' >>spec
    rpmbuild --quiet -bb --define '_rpmdir /srv/lab' spec
done; done
cp /srv/lab/noarch/gpuops-lab-1.0* /srv/bare; createrepo_c --quiet /srv/bare
$gpg --armor --detach-sign /srv/bare/repodata/repomd.xml
rpmsign --define '_gpg_name lab@example.com' --define '_gpg_path /root/build' --define '__gpg /usr/bin/gpg' \
    --addsign /srv/lab/noarch/*.rpm >/dev/null 2>&1
createrepo_c --quiet /srv/lab; gpgconf --homedir /root/build --kill all
$gpg --with-colons --list-keys | grep -m 1 ^fpr | cut -d: -f10
"""


@pytest.fixture
def signed(jail, tmp_path):
    """A signed repository in the jail, which has dnf; its key and the key's fingerprint."""
    for script in (BECOME_RED_HAT, BUILD):
        done = jail.run("sh", "-c", script)
        assert done.returncode == 0, done
    (tmp_path / "key").write_text(jail.read("/srv/lab/key"))
    return tmp_path / "key", done.stdout.strip()


@pytest.mark.skipif(os.environ.get("GPUOPS_CI") != "1", reason="dnf is installed for it with GPUOPS_CI=1 only")
def test_a_key_a_repository_a_package_and_its_hold(jail, signed):
    key, fingerprint = signed
    repository = {"name": "lab", "baseurl": "file:///srv/lab", "gpgkey": f"file://{KEY}"}
    jail.apply("dnf_repo", **repository)
    (change,) = jail.plan("package", {"versions": {"gpuops-lab": "1.0"}}).changes
    assert change.after == "gpuops-lab 3:1.0-1.el9\n"
    assert jail.answer(change.command).exit != 0  # no key yet

    jail.apply("repo_key", path=KEY, src=key, fingerprints=[fingerprint])
    assert jail.apply("package", versions={"gpuops-lab": "1.0"}) == ["install gpuops-lab-1.0"]
    made = ["install python3-dnf-plugin-versionlock", "lock gpuops-lab 3:1.0-1.el9"]
    assert jail.apply("package_hold", names=["gpuops-lab"]) == made
    refused = jail.look("package", {"versions": {"gpuops-lab": "2.0"}})
    assert refused.changes == []
    assert "filtered out by exclude filtering for argument: gpuops-lab-2.0" in refused.stop.why

    assert jail.apply("package", versions={"gpuops-lab": "2.0"}, change_held=True) == ["install gpuops-lab-2.0"]
    assert jail.apply("package_hold", names=["gpuops-lab"]) == [
        "unlock gpuops-lab 3:1.0-1.el9",
        "lock gpuops-lab 3:2.0-1.el9",
    ]
    assert jail.apply("package_hold", names=["gpuops-lab"], state="free") == ["unlock gpuops-lab 3:2.0-1.el9"]
    assert jail.apply("package", versions={"gpuops-lab": "1.0"}) == ["install gpuops-lab-1.0"]
    assert jail.apply("package", names=["gpuops-lab"], state="absent") == ["remove gpuops-lab"]


@pytest.mark.skipif(os.environ.get("GPUOPS_CI") != "1", reason="dnf is installed for it with GPUOPS_CI=1 only")
def test_packages_without_a_signature_are_taken_where_their_list_is_signed(jail, signed):
    key, fingerprint = signed
    repository = {"name": "bare", "baseurl": "file:///srv/bare", "gpgkey": f"file://{KEY}"}
    jail.apply("repo_key", path=KEY, src=key, fingerprints=[fingerprint])
    jail.apply("dnf_repo", **repository)
    (change,) = jail.plan("package", {"names": ["gpuops-lab"]}).changes
    done = jail.answer(change.command)
    assert done.exit != 0
    assert "is not signed" in done.out + done.err

    jail.apply("dnf_repo", **repository, signed="list")
    assert jail.apply("package", names=["gpuops-lab"]) == ["install gpuops-lab"]
    assert jail.look("repos_reachable", {}).stop is None
    jail.run("sh", "-c", "echo >>/srv/bare/repodata/repomd.xml")
    assert "GPG signature verification error" in jail.run("dnf", "-y", "makecache", "--refresh").stderr
    assert "repo 'bare'" in jail.look("repos_reachable", {}).stop.why
