from gpuops import Failed, Later

FILE = "/etc/sysctl.d/90-gpuops.conf"
PLACE = "/proc/sys/net/core/somaxconn"
KEY = {"key": "net.core.somaxconn", "value": "4096"}


def lines(found):
    return [(change.what, str(change.command)) for change in found.changes]


def script(drop_in, now):
    return {PLACE: now, FILE: drop_in}


def test_what_holds_now_and_after_a_boot_is_left_alone(planned):
    assert planned("sysctl", script("net.core.somaxconn = 4096\n", "4096\n"), **KEY).changes == []


def test_the_running_kernel_and_the_file_are_set_each_where_it_differs(planned):
    found = planned("sysctl", script("net.core.somaxconn = 4096\n", "128\n"), **KEY)
    assert lines(found) == [("net.core.somaxconn = 4096 (was 128)", "sysctl -w net.core.somaxconn=4096")]
    (change,) = planned("sysctl", script("vm.swappiness = 1\n", "4096\n"), **KEY).changes
    assert (change.what, change.after) == (f"replace {FILE}", "vm.swappiness = 1\nnet.core.somaxconn = 4096\n")


def test_a_contradiction_in_the_file_is_taken_out(planned):
    text = "net.core.somaxconn = 4096\n# why\nnet.core.somaxconn=128\nvm.swappiness = 1\n"
    (change,) = planned("sysctl", script(text, "4096\n"), **KEY).changes
    assert change.after == "net.core.somaxconn = 4096\n# why\nvm.swappiness = 1\n"


def test_a_drop_in_that_cannot_be_read_keeps_its_lines(planned):
    refused = {PLACE: "128\n", "sh -c stat": (1, "", "cat: Permission denied")}
    found = planned("sysctl", refused, **KEY)
    assert (found.changes, found.stop) == ([], Failed(f"cannot inspect {FILE}: cat: Permission denied"))


def test_blanks_between_numbers_do_not_matter(planned):
    place, key = "/proc/sys/net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem"
    answers = {place: "4096\t87380\t16777216\n", FILE: f"{key} = 4096 87380 16777216\n"}
    assert planned("sysctl", answers, key=key, value="4096 87380 16777216").changes == []


def test_a_dot_in_the_name_of_an_interface_is_a_slash(planned):
    place = "/proc/sys/net/ipv4/conf/eth0.7/rp_filter"
    answers = {place: "0\n", FILE: "net.ipv4.conf.eth0/7.rp_filter = 0\n"}
    assert planned("sysctl", answers, key="net.ipv4.conf.eth0/7.rp_filter", value="0").changes == []


def test_a_parameter_that_the_kernel_lacks_is_not_set(planned):
    found = planned("sysctl", {FILE: "a.b = 1\n"}, key="a.b", value="1")
    assert found.later == [Later("the running kernel has no a.b; its module may not be loaded yet")]
