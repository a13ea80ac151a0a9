import base64

import pytest

from gpuops import Failed

KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawAqrxYJKwYBBAHaRw8BAQdAb3tKkBz4COZmy8sL1a+deu4oXH9Z3tpOVOmJ
YQeDtIm0FW9uZSA8b25lQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEanNk/tLo0IGa
7dVe0Dmds60T11IFAmsAKq8CGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
0Dmds60T11J6JAD/W1zoQAh62h0MDiIdJhdcayspvlXjuU3jzXOYgSKXHEABAOkt
OOkR+xkuSwm7WpV1bm2x8RZU4InYr+NgdAYf7lwL
=vdPr
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "6A7364FED2E8D0819AEDD55ED0399DB3AD13D752"
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"


@pytest.fixture
def asked(node, look):
    """The address of the key that the node is asked for, and what stops it then (here nobody has the key)."""
    addresses = []

    def fetch(words):
        addresses.append(words[-1])
        return 0, base64.b64encode(b"no key").decode()

    node.answers["sh -c if command -v curl"] = fetch
    return lambda **params: (look(node, "nvidia_repo", **params).stop.why, *addresses)


@pytest.mark.parametrize(
    ("node", "place", "fingerprint"),
    [
        ("ubuntu 22.04", "ubuntu2204/x86_64/3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("ubuntu 24.04", "ubuntu2404/x86_64/3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("debian 12", "debian12/x86_64/3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
        ("rocky 8.10", "rhel8/x86_64/D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
        ("rhel 9.4", "rhel9/x86_64/D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    ],
    indirect=["node"],
)
def test_the_key_is_asked_for_where_nvidia_has_it_and_known_by_its_fingerprint(asked, place, fingerprint):
    why, address = asked(name="cuda")
    assert address == f"{CUDA}/{place}"
    assert why == f"{address} holds no key; expected {fingerprint}"


@pytest.mark.parametrize(
    ("params", "place", "suite"),
    [
        ({"name": "cuda"}, f"{CUDA}/ubuntu2404/x86_64/", "/"),
        ({"name": "container-toolkit"}, "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/", "/"),
        (
            {"name": "doca", "version": "3.2.1"},
            "https://linux.mellanox.com/public/repo/doca/3.2.1/ubuntu24.04/x86_64/",
            "./",
        ),
    ],
)
def test_apt_gets_a_signed_source_and_its_lists(node, apply, params, place, suite):
    node.answers["sh -c if command -v curl"] = base64.b64encode(KEY.encode()).decode()
    old = {f"/etc/apt/sources.list.d/cuda-ubuntu{release}-x86_64.list" for release in ("2204", "2404")}
    node.files |= dict.fromkeys(old, "deb …")
    apply(node, "nvidia_repo", fingerprint=FINGERPRINT, **params)
    name = f"nvidia-{params['name']}"
    source = node.files[f"/etc/apt/sources.list.d/{name}.sources"]
    assert f"URIs: {place}\nSuites: {suite}\nSigned-By: /etc/apt/keyrings/{name}.asc\n" in source
    assert old & set(node.files) == (set() if params["name"] == "cuda" else old)
    assert apply(node, "nvidia_repo", fingerprint=FINGERPRINT, **params) == []


@pytest.mark.parametrize("node", ["rocky 8.10"], indirect=True)
def test_dnf_gets_a_signed_repository_without_what_fights_docas(node, apply):
    node.answers["sh -c if command -v curl"] = base64.b64encode(KEY.encode()).decode()
    node.files["/etc/yum.repos.d/cuda-rhel8.repo"] = "[cuda-rhel8-x86_64]\n"
    apply(node, "nvidia_repo", name="cuda", fingerprint=FINGERPRINT)
    assert "/etc/yum.repos.d/cuda-rhel8.repo" not in node.files
    lines = node.files["/etc/yum.repos.d/nvidia-cuda.repo"].splitlines()
    assert f"baseurl={CUDA}/rhel8/x86_64" in lines
    assert {"gpgcheck=1", "gpgkey=file:///etc/pki/rpm-gpg/nvidia-cuda.asc", "excludepkgs=mft* kernel-mft*"} <= set(
        lines
    )


@pytest.mark.parametrize("node", ["rhel 9.4"], indirect=True)
def test_the_list_is_signed_where_packages_are_not(node, apply):
    node.answers.update({"sh -c if command -v curl": base64.b64encode(KEY.encode()).decode(), "dnf -": ""})
    apply(node, "nvidia_repo", name="container-toolkit", fingerprint=FINGERPRINT)
    text = node.files["/etc/yum.repos.d/nvidia-container-toolkit.repo"]  # NVIDIA's own file has the same name
    assert "gpgcheck=0\nrepo_gpgcheck=1\n" in text
    assert apply(node, "nvidia_repo", name="container-toolkit", fingerprint=FINGERPRINT) == []


def test_whether_it_is_offered_is_asked_without_a_change(node, look):
    node.answers.update({"sh -c if command -v curl": base64.b64encode(KEY.encode()).decode(), "sh -c folder=": ""})
    wish = {"name": "cuda", "fingerprint": FINGERPRINT}
    found = look(node, "repos_reachable", nvidia=[wish])
    assert (found.changes, found.later, found.stop) == ([], [], None)
    node.files["/etc/apt/keyrings/nvidia-cuda.asc"] = KEY
    node.answers["sh -c if command -v curl"] = (
        0,
        "",
        "curl: (6) Could not resolve host: developer.download.nvidia.com\n",
    )
    assert "Could not resolve host" in look(node, "repos_reachable", nvidia=[wish]).stop.why
    node.answers["sh -c if command -v curl"] = base64.b64encode(KEY.encode()).decode()
    assert "expected EB693B" in look(node, "repos_reachable", nvidia=[{"name": "cuda"}]).stop.why


def test_a_repository_goes_away(node, apply):
    node.files["/etc/apt/sources.list.d/nvidia-cuda.sources"] = "x"
    apply(node, "nvidia_repo", name="cuda", state="absent")
    assert not any("sources.list.d" in path for path in node.files)


def test_a_mirror_is_laid_out_like_the_original(asked):
    _, address = asked(name="cuda", url="http://mirror/cuda/")
    assert address == "http://mirror/cuda/ubuntu2404/x86_64/3bf863cc.pub"


def test_an_arm_node_takes_its_own_packages(node, asked):
    node.answers["uname -m"] = "aarch64\n"
    assert asked(name="cuda")[1] == f"{CUDA}/ubuntu2404/sbsa/3bf863cc.pub"


@pytest.mark.parametrize("arch", ["x86_64", "riscv64"])
def test_a_node_that_nvidia_has_nothing_for_is_refused(node, look, arch):
    node.answers["uname -m"] = f"{arch}\n"
    node.files["/etc/os-release"] = "ID=arch\n" if arch == "x86_64" else "ID=debian\nVERSION_ID=12\n"
    found = look(node, "nvidia_repo", name="cuda")
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_docas_key_is_not_guessed(node, look):
    assert "fingerprint" in look(node, "nvidia_repo", name="doca", version="3.2.1").stop.why
