import pytest

from gpuops import Failed

CONF = "/etc/modprobe.d/gpuops-nouveau.conf"
RELEASE = {"/proc/sys/kernel/osrelease": "6.8.0-45-generic\n"}
DEBIAN, RED_HAT = "/boot/initrd.img-6.8.0-45-generic", "/boot/initramfs-6.8.0-45-generic.img"


def times(**seconds):
    names = {"debian": DEBIAN, "red_hat": RED_HAT, "conf": CONF}
    return {**RELEASE, "stat": (1, "".join(f"{at} {names[name]}\n" for name, at in seconds.items()))}


@pytest.mark.parametrize(
    ("found", "due", "expected"),
    [
        (times(debian="20.5", conf="20.4"), False, []),
        (times(debian="20.5", conf="20.6"), False, ["update-initramfs -u -k all"]),
        (times(debian="20.5"), False, []),
        (times(debian="20.5"), True, ["update-initramfs -u -k all"]),
        (times(red_hat="20.5", conf="1763000000.000000001"), False, ["dracut --force --regenerate-all"]),
        (times(conf="20.6"), True, []),
    ],
)
def test_an_image_that_is_older_than_a_file_is_made_anew(planned, found, due, expected):
    changes = planned("initramfs", found, files=[CONF], due=due).changes
    assert [str(change.command) for change in changes] == expected
    assert {change.kind for change in changes} <= {"rebuild"}


def test_a_node_that_does_not_tell_its_kernel_is_no_pass(planned):
    assert isinstance(planned("initramfs", {}, files=[CONF]).stop, Failed)
