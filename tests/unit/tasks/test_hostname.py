import pytest

from gpuops.errors import DocumentError
from gpuops.playbook.task import Machine

NOW, FILE = "/proc/sys/kernel/hostname", "/etc/hostname"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({NOW: "gpu01\n", FILE: "gpu01\n"}, []),
        ({NOW: "localhost\n", FILE: "gpu01\n"}, ["set the host name to gpu01"]),
        ({NOW: "gpu01\n", FILE: "localhost\n"}, [f"replace {FILE}"]),
        ({NOW: "localhost\n"}, [f"write {FILE}", "set the host name to gpu01"]),
    ],
)
def test_the_kernel_and_the_file_say_the_name_of_the_inventory(planned, script, expected):
    found = planned("hostname", script, Machine("gpu01"))
    assert [change.what for change in found.changes] == expected


def test_a_name_that_is_given_wins(planned):
    found = planned("hostname", {NOW: "x\n", FILE: "a.example.com\n"}, Machine("gpu01"), name="a.example.com")
    assert str(found.changes[0].command) == "sysctl -w kernel.hostname=a.example.com"


@pytest.mark.parametrize("name", ["-a", "a b", "a;b", "a\n", "é", "a-", "x" * 65])
def test_a_wrong_name_is_refused(planned, name):
    with pytest.raises(DocumentError, match="name may contain letters"):
        planned("hostname", {}, name=name)
