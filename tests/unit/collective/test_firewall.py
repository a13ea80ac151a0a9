import pytest

from gpuops.collective.preflight.firewall import input_chains, opening

LISTED = """\
table inet t {
	chain i {
		type filter hook input priority filter; policy drop;
	}
	chain helper {
	}
	chain o {
		type filter hook output priority filter; policy accept;
	}
}
table ip6 f {
	chain INPUT {
		type filter hook input priority filter; policy drop;
	}
}
table ip filter {
	chain INPUT {
		type filter hook input priority filter; policy drop;
	}
}
"""


def test_chains_that_judge_incoming_ipv4_are_known():
    assert list(input_chains(LISTED.splitlines())) == ["inet t i", "ip filter INPUT"]
    assert not list(input_chains(["Operation not permitted (you must be root)"]))


@pytest.mark.parametrize(
    ("sources", "port", "rule"),
    [
        (["10.0.0.1"], 29500, "nft insert rule inet t i ip saddr 10.0.0.1 tcp dport 29500 accept   on n1; then "),
        (["10.0.0.1", "10.0.0.2"], None, "nft insert rule inet t i ip saddr '{ 10.0.0.1, 10.0.0.2 }' accept   on n1; "),
    ],
)
def test_a_rule_lets_in_the_nodes_that_were_kept_out(sources, port, rule):
    assert opening(["inet t i"], sources, "n1", port).startswith(rule)


def test_every_chain_has_to_accept():
    assert opening(["inet t i", "ip f j"], ["10.0.0.1"], "n1").count(" && nft insert rule ip f j ") == 1


def test_no_rule_is_made_up_where_the_firewall_is_not_known():
    assert opening([], ["10.0.0.1"], "n1") == opening(["inet t i"], [], "n1") == ""
