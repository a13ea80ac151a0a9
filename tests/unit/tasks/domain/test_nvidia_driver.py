import pytest

from gpuops import Failed, NeedsOperator
from gpuops.errors import DocumentError

OLD, NEW = "580.126.20", "580.173.02"
COMPUTE = ("libnvidia-compute{b}", "libnvidia-cfg1{b}", "nvidia-utils{b}", "nvidia-compute-utils{b}", "nvidia-modprobe")


def stocked(node, *versions, names=("nvidia-open",)):
    """A node whose repositories have these packages of these versions; DKMS builds what they bring."""
    end = "-1.el9" if node.red_hat else "-1ubuntu1"
    for version in versions:
        node.offer(*(f"{name}={version}{end}" for name in names))
        node.offer(f"nvidia-driver-pinning-{version}=1", f"nvidia-persistenced={version}{end}")
    node.offer("python3-dnf-plugin-versionlock=4-1", f"kernel-devel={node.kernel.rpartition('.')[0]}")
    for kind in (node.kernel, "generic", "amd64"):
        node.offer(f"linux-headers-{kind}=1")
    if not node.red_hat:
        node.installed[f"linux-image-{node.kernel}"] = node.installed["linux-image-generic"] = "1"
    node.answers["dkms"] = "nvidia/0, x: added\n"
    node.answers["dnf -q module list"] = ""
    node.answers["dnf -y module enable"] = lambda words: enable(node, words)
    node.brings.update(dict.fromkeys(names, lambda version: built(node, version)))
    return node


def built(node, version):
    node.answers["dkms"] = f"nvidia/{version.rpartition('-')[0]}, {node.kernel}, x86_64: installed\n"


def enable(node, words):
    stream = words[-1].partition(":")[2]
    node.answers["dnf -q module list"] = f"Name Stream\nnvidia-driver {stream} [e] default [d], fm, ks\n"
    return 0


def drivers(node):
    kept = ("nvidia", "libnvidia", "cuda", "kmod")
    return {name: version for name, version in node.installed.items() if name.startswith(kept)}


@pytest.mark.parametrize("node", ["ubuntu 22.04", "ubuntu 24.04", "debian 12"], indirect=True)
def test_the_pinning_package_comes_first_then_one_transaction(node, apply):
    stocked(node, OLD, NEW)
    done = apply(node, "nvidia_driver", version=OLD)
    pinning, *rest = [what for what in done if what.startswith("install nvidia")]
    assert pinning == f"install nvidia-driver-pinning-{OLD}"
    daemon = "debian" in node.files["/etc/os-release"]
    names = ("nvidia-open", *(["nvidia-persistenced"] if daemon else []))
    assert rest == ["install " + ", ".join(f"{name}={OLD}-1ubuntu1" for name in names)]
    assert "nvidia-open" in node.held
    assert node.files["/etc/modprobe.d/gpuops-nouveau.conf"] == "blacklist nouveau\noptions nouveau modeset=0\n"
    assert node.files["/run/reboot-required.pkgs"].split() == ["nvidia-driver"]
    node.load(OLD)
    assert apply(node, "nvidia_driver", version=OLD) == []


def test_headers_of_the_running_kernel_and_of_those_to_come_are_installed(node, apply):
    apply(stocked(node, OLD), "nvidia_driver", version=OLD)
    assert {"linux-headers-6.8.0-45-generic", "linux-headers-generic"} <= set(node.installed)


def test_an_upgrade_takes_along_what_must_be_of_the_same_version(node, apply):
    lockstep = ("nvidia-fabricmanager", "libnvidia-nscq", "nvidia-imex")
    stocked(node, OLD, NEW, names=("nvidia-open", *lockstep))
    apply(node, "nvidia_driver", version=OLD)
    node.installed.update(dict.fromkeys(lockstep, f"{OLD}-1ubuntu1"))
    node.load(OLD)
    done = apply(node, "nvidia_driver", version=NEW)
    together = ", ".join(f"{name}={NEW}-1ubuntu1" for name in ("nvidia-open", *lockstep))
    assert f"install {together}" in done
    assert drivers(node)["nvidia-fabricmanager"] == f"{NEW}-1ubuntu1"
    assert "nvidia-driver" in node.files["/run/reboot-required.pkgs"]


def test_a_rollback_is_the_same_way_back(node, apply):
    stocked(node, OLD, NEW)
    apply(node, "nvidia_driver", version=NEW)
    apply(node, "nvidia_driver", version=OLD)
    assert drivers(node)["nvidia-open"] == f"{OLD}-1ubuntu1"


def names_of(branch, module):
    return {module, *(name.format(b=branch) for name in COMPUTE)}


@pytest.mark.parametrize(
    ("version", "modules", "expected"),
    [
        (OLD, "open", names_of("-580", "nvidia-dkms-580-open")),
        (OLD, "proprietary", names_of("-580", "nvidia-dkms-580")),
        ("590.48.01", "open", names_of("", "nvidia-dkms-open")),
    ],
)
def test_packages_lost_their_branch_with_590(node, apply, version, modules, expected):
    stocked(node, version, names=expected)
    apply(node, "nvidia_driver", version=version, modules=modules, compute_only=True)
    assert set(drivers(node)) == {*expected, f"nvidia-driver-pinning-{version}"}


def test_packages_that_were_renamed_may_go_and_no_others(node, look):
    stocked(node, "590.48.01")
    old = {"nvidia-open": f"{OLD}-1", "nvidia-dkms-580-open": f"{OLD}-1", "nvidia-container-toolkit": "1.20.0-1"}
    node.installed |= {**old, **dict.fromkeys(node.offered, "1"), **old}
    rehearsed = "Inst nvidia-open [1] (2 repo)\nRemv nvidia-dkms-580-open [1]\n{}1 upgraded, 1 newly installed"
    apt = "env DEBIAN_FRONTEND=noninteractive"
    node.answers[apt] = rehearsed.format("")
    assert look(node, "nvidia_driver", version="590.48.01").stop is None
    node.answers[apt] = rehearsed.format("Remv nvidia-container-toolkit [1]\n")
    assert "would remove nvidia-container-toolkit" in look(node, "nvidia_driver", version="590.48.01").stop.why


@pytest.mark.parametrize("node", ["rocky 8.10", "rhel 9.4"], indirect=True)
def test_dnf_takes_the_stream_of_the_branch_and_then_the_version(node, apply):
    stocked(node, OLD)
    apply(node, "nvidia_driver", version=OLD)
    assert "dnf -y module enable nvidia-driver:580-open" in node.done
    assert drivers(node) == dict.fromkeys(("nvidia-open", "nvidia-persistenced"), f"{OLD}-1.el9")
    node.load(OLD)
    assert apply(node, "nvidia_driver", version=OLD) == []


@pytest.mark.parametrize(
    ("node", "modules", "names"),
    [
        ("rocky 8.10", "open", ("nvidia-driver-cuda", "kmod-nvidia-open-dkms")),
        ("rhel 9.4", "proprietary", ("nvidia-driver-cuda", "kmod-nvidia-latest-dkms")),
        ("debian 12", "open", ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")),
        ("debian 12", "proprietary", ("nvidia-driver-cuda", "nvidia-kernel-dkms")),
    ],
    indirect=["node"],
)
def test_what_draws_on_screens_is_left_out(node, apply, modules, names):
    stocked(node, OLD, names=names)
    apply(node, "nvidia_driver", version=OLD, modules=modules, compute_only=True)
    assert {name for name in drivers(node) if "pinning" not in name} == {*names, "nvidia-persistenced"}


@pytest.mark.parametrize("node", ["rhel 9.4"], indirect=True)
def test_another_stream_is_switched_not_enabled(node, look):
    stocked(node, "590.48.01")
    enable(node, ["nvidia-driver:580-open"])
    commands = [str(change.command) for change in look(node, "nvidia_driver", version="590.48.01").changes]
    assert "dnf -y module switch-to --allowerasing nvidia-driver:590-open" in commands


def test_ubuntus_own_packages_need_no_compiler_and_no_enrolled_key(node, apply):
    names = ("nvidia-headless-no-dkms-580-server-open", "nvidia-utils-580-server")
    stocked(node, OLD, names=names)
    kinds = (node.kernel, "generic")
    node.offer(*(f"linux-modules-nvidia-580-server-open-{kind}=6.8.0-45.1" for kind in kinds))
    node.answers["mokutil"] = "SecureBoot enabled\n"
    apply(node, "nvidia_driver", version=OLD, origin="distribution")
    modules = {f"linux-modules-nvidia-580-server-open-{kind}" for kind in kinds}
    assert {*names, *modules} <= set(node.installed)
    assert not any("pinning" in name or "headers" in name for name in node.installed)


def test_a_build_that_failed_behind_an_exit_of_0_is_told_with_the_compilers_words(node, look, apply):
    stocked(node, OLD)
    apply(node, "nvidia_driver", version=OLD)
    node.answers["dkms"] = f"nvidia/{OLD}: added\n"
    node.answers["sh -c for log in /var/lib/dkms"] = (
        "  CC nv.o\nnv.c:7: error: too few arguments\nmake: *** [x] Error 2\n"
    )
    found = look(node, "nvidia_driver", version=OLD)
    assert isinstance(found.stop, Failed)
    assert "nv.c:7: error: too few arguments" in found.stop.why
    assert node.kernel in found.stop.why


@pytest.mark.parametrize(("said", "waits"), [("is already enrolled", False), ("is not enrolled", True)])
def test_secure_boot_waits_for_a_person_until_the_key_is_enrolled(node, look, apply, said, waits):
    stocked(node, OLD)
    apply(node, "nvidia_driver", version=OLD)
    node.answers["mokutil --sb-state"] = "SecureBoot enabled\n"
    node.answers["mokutil --test-key"] = (1, f"/var/lib/shim-signed/mok/MOK.der {said}\n")
    assert isinstance(look(node, "nvidia_driver", version=OLD).stop, NeedsOperator) == waits


def test_options_are_compared_with_those_that_the_driver_runs_with(node, apply, look):
    option = {"NVreg_RestrictProfilingToAdminUsers": "0"}
    stocked(node, OLD)
    apply(node, "nvidia_driver", version=OLD, options=option)
    assert node.files["/etc/modprobe.d/gpuops-nvidia.conf"] == "options nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
    node.load(OLD)
    node.files.pop("/run/reboot-required")
    node.files["/proc/driver/nvidia/params"] = "RestrictProfilingToAdminUsers: 0\nOther: 1\n"
    assert look(node, "nvidia_driver", version=OLD, options=option).changes == []
    node.files["/proc/driver/nvidia/params"] = "RestrictProfilingToAdminUsers: 1\n"
    whats = [change.what for change in look(node, "nvidia_driver", version=OLD, options=option).changes]
    assert whats == ["write /run/reboot-required"]


VOLTA = "1b:00.0 3D controller [0302]: NVIDIA Corporation GV100GL [Tesla V100 SXM2] [10de:1db1] (rev a1)\n"
BLACKWELL = "1b:00.0 3D controller [0302]: NVIDIA Corporation GB100 [B200] [10de:2901] (rev a1)\n"


@pytest.mark.parametrize(
    ("gpu", "version", "modules", "refused"),
    [
        (VOLTA, OLD, "open", True),
        (VOLTA, "590.48.01", "proprietary", True),
        (VOLTA, OLD, "proprietary", False),
        (BLACKWELL, OLD, "proprietary", True),
        (BLACKWELL, OLD, "open", False),
    ],
)
def test_modules_that_a_gpu_has_none_of_are_refused_before_anything_is_changed(
    node, look, gpu, version, modules, refused
):
    stocked(node, version)
    node.answers["lspci -Dnn"] = gpu
    found = look(node, "nvidia_driver", version=version, modules=modules)
    assert isinstance(found.stop, Failed) == refused
    assert bool(found.changes) != refused


def test_packages_are_not_mixed_with_nvidias_own_installer(node, look):
    stocked(node, OLD).files["/usr/bin/nvidia-uninstall"] = ""
    found = look(node, "nvidia_driver", version=OLD)
    assert "installer" in found.stop.why
    assert found.changes == []


@pytest.mark.parametrize("node", ["debian 12"], indirect=True)
def test_only_ubuntu_has_packages_of_its_own(node, look):
    found = look(stocked(node, OLD), "nvidia_driver", version=OLD, origin="distribution")
    assert found.stop == Failed("only Ubuntu has its own driver packages for servers, but this is debian")


@pytest.mark.parametrize(
    "wrong",
    [{"version": "570.1.2"}, {"version": "580"}, {"version": "620.1.1", "modules": "proprietary"},
     {"version": OLD, "options": {"a": "b c"}}],
)  # fmt: skip
def test_wrong_parameters_are_refused(node, look, wrong):
    with pytest.raises(DocumentError, match="nvidia_driver"):
        look(node, "nvidia_driver", **wrong)
