"""What a message proposes can be pasted: it is quoted, and it means the hosts that are in use."""

import shlex
from types import SimpleNamespace

import pytest

from gpuops.fleet import each
from gpuops.isolation.evidence import BlamedPart
from gpuops.isolation.remedies import fix_for
from gpuops.proposal import HostOptions, propose, propose_again, proposing


def test_command_has_the_options_that_chose_the_hosts():
    with proposing(HostOptions("prod.yml")):
        assert propose("validate", "--limit", "gpu01") == "gpuops validate --limit gpu01 -i prod.yml"
    assert propose("validate", "--limit", "gpu01") == "gpuops validate --limit gpu01"


def test_command_is_quoted_for_a_shell():
    with proposing(HostOptions("my hosts.yml")):
        words = shlex.split(propose("drain", "gpu[01-04]", "--reason", "a; b"))
    assert words == ["gpuops", "drain", "gpu[01-04]", "--reason", "a; b", "-i", "my hosts.yml"]


@pytest.mark.parametrize(
    ("options", "words", "command"),
    [
        (HostOptions(saved="monday"), ("validate",), "gpuops validate --from monday"),
        (HostOptions(saved="monday"), ("onboard", "n1"), "gpuops onboard n1"),
        (HostOptions("prod.yml", "monday"), ("validate",), "gpuops validate -i prod.yml"),
        (HostOptions("prod.yml", passwords=("-K",)), ("fix", "clock", "n1"), "gpuops fix clock n1 -i prod.yml -K"),
        (HostOptions("a,b", passwords=("-k",)), ("inventory", "graph"), "gpuops inventory graph -i a,b"),
        (HostOptions("a,b", passwords=("-k",)), ("runs", "list"), "gpuops runs list -i a,b"),
        (HostOptions("a,b", passwords=("-k",)), ("state", "show", "n1"), "gpuops state show n1 -i a,b"),
        (HostOptions("a,b", passwords=("-k",)), ("state", "set", "n1", "rma"), "gpuops state set n1 rma -i a,b -k"),
    ],
)
def test_command_has_only_options_that_it_takes(options, words, command):
    with proposing(options):
        assert propose(*words) == command


def test_same_hosts_are_those_of_the_pattern_and_the_limit():
    with proposing(HostOptions("prod.yml", pattern="gpu[01-04]", limit="!gpu02")):
        again = propose_again("validate", "--level", "standard")
        assert again == "gpuops validate 'gpu[01-04]' --level standard --limit '!gpu02' -i prod.yml"
        assert propose("onboard", "gpu01") == "gpuops onboard gpu01 -i prod.yml"


def test_options_stand_before_the_command_of_another_program():
    with proposing(HostOptions("p.yml")):
        assert (
            propose("preflight", "--limit", "a", "--", "torchrun", "x")
            == "gpuops preflight --limit a -i p.yml -- torchrun x"
        )


def test_threads_of_a_fan_out_propose_for_the_same_hosts():
    hosts = [SimpleNamespace(name=name) for name in ("n1", "n2")]
    with proposing(HostOptions("prod.yml")):
        outcomes = each(hosts, lambda host: propose("trust", host.name))
    assert [outcome.value for outcome in outcomes] == [f"gpuops trust {name} -i prod.yml" for name in ("n1", "n2")]


@pytest.mark.parametrize(
    ("blamed", "command"),
    [
        (BlamedPart("n1:mlx5_0", "slow", partners=("n2",)), "gpuops allreduce --limit n1,n2 --scope rail -i prod.yml"),
        (BlamedPart("n1:gpu3", "slow", partners=("n2",)), "gpuops allreduce --limit n1,n2 --scope pair -i prod.yml"),
        (BlamedPart("n1", "slow", partners=("n2",)), "gpuops allreduce --limit n1,n2 --scope pair -i prod.yml"),
        (BlamedPart("n1", "slow"), "gpuops validate --limit n1 -i prod.yml"),
        (BlamedPart("n1", "hang"), "gpuops validate --limit n1 -i prod.yml"),
    ],
)
def test_fix_of_a_blamed_part_ends_with_one_command(blamed, command):
    with proposing(HostOptions("prod.yml")):
        fix = fix_for(blamed)
    assert fix.endswith(f", then {command}")
    assert fix.count("gpuops") == 1
