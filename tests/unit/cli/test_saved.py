"""``--from DIR --limit PATTERN``: the pattern selects among the saved hosts, in every verb that takes both."""

import json

import pytest
from click.testing import CliRunner
from tests.unit.checks.lab_node import NOW, PROBES, answers_of

from gpuops.assessment import probes_for
from gpuops.catalogue import Catalogue
from gpuops.cli import program
from gpuops.errors import PatternError
from gpuops.facts import questions, read
from gpuops.judging import choose
from gpuops.report.answers import save_facts
from gpuops.shell import Completed

HOSTS = "all: {children: {rack1: {hosts: {n1: }}, rack2: {hosts: {n2: , n4: }}}, vars: {ansible_connection: local}}\n"


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Answers of n1, n2 and n3, of which the inventory has the first two, and n4."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text(HOSTS)
    done = CliRunner().invoke(
        program, ["facts", "-i", "hosts.yml", "-l", "n1,n2", "--save", "kept", "--probe", "clock"]
    )
    assert done.exit_code == 0, done.output
    (tmp_path / "kept" / "n3.json").write_text((tmp_path / "kept" / "n2.json").read_text().replace('"n2"', '"n3"'))
    return tmp_path


def hosts_of(*words):
    """The hosts that a verb's document speaks of."""
    done = CliRunner().invoke(program, words, standalone_mode=False)
    if done.exception:
        raise done.exception
    document = json.loads(done.stdout)
    if "classes" in document:
        return {host for each in document["classes"] for host in each["nodes"]}
    return {*document.get("hosts", ()), *document.get("excluded", ())}


VERBS = [("validate", "--format", "json"), ("allreduce", "--json"), ("allreduce", "expect", "--json")]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
@pytest.mark.parametrize(
    ("limit", "hosts"),
    [("n1", {"n1"}), ("n[2-3]", {"n2", "n3"}), ("all:!n1", {"n2", "n3"}), (None, {"n1", "n2", "n3"})],
)
def test_limit_selects_among_the_saved(saved, verb, limit, hosts):
    assert hosts_of(*verb, "--from", "kept", *(("--limit", limit) if limit else ())) == hosts


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
@pytest.mark.parametrize("named", ["option", "settings", "environment"])
def test_limit_knows_the_groups_of_the_inventory(saved, monkeypatch, verb, named):
    if named == "settings":
        (saved / "gpuops.yml").write_text("inventory: hosts.yml\n")
    if named == "environment":
        monkeypatch.setenv("GPUOPS_INVENTORY", "hosts.yml")
    words = ("-i", "hosts.yml") if named == "option" else ()
    assert hosts_of(*verb, "--from", "kept", "--limit", "rack1", *words) == {"n1"}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
def test_limit_that_means_nothing_is_refused(saved, verb):
    with pytest.raises(PatternError, match='no host or group called "n9"'):
        hosts_of(*verb, "--from", "kept", "--limit", "n9")


def test_unreachable_host_and_named_profile_are_saved_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here, gone = "{ansible_connection: local, profile: titan-rtx-2x}", "{ansible_host: 127.0.0.1, ansible_port: 1}"
    (tmp_path / "hosts.yml").write_text(f"all: {{hosts: {{n1: {here}, n2: {gone}}}}}\n")
    words = ["facts", "-i", "hosts.yml", "--save", "kept", "--probe", "clock"]
    assert CliRunner().invoke(program, words, standalone_mode=False).return_value == 3
    done = CliRunner().invoke(program, ["validate", "--from", "kept", "--json"], standalone_mode=False)
    hosts = json.loads(done.stdout)["hosts"]
    assert hosts["n1"]["profile"] == "titan-rtx-2x"
    assert (hosts["n2"]["status"], hosts["n2"]["excluded"]["kind"]) == ("unknown", "unreachable")
    assert "connection refused" in hosts["n2"]["error"]
    done = CliRunner().invoke(program, ["place", "--from", "kept", "--layout", "dp=1"], standalone_mode=False)
    assert "n2: unreachable: connection refused" in " ".join(done.stderr.split())


@pytest.fixture
def node(tmp_path, monkeypatch):
    """The saved answers of a healthy node, to the questions of a level; those of the higher one are failures."""
    monkeypatch.chdir(tmp_path)

    def save(level):
        answers = answers_of("hgx-h100")
        for question in questions(probes_for(choose(Catalogue().checks(), level))):
            if question not in {answer.question for answer in answers}:
                answers.append(Completed("gpu01", question, 1))
        save_facts({"gpu01": read("gpu01", NOW, answers, PROBES, keep_answers=True)}, tmp_path / "kept")

    return save


@pytest.mark.parametrize(
    ("level", "is_proposed", "lacking"), [("quick", False, "drive-health"), ("standard", True, "dcgm-diagnosis")]
)
def test_higher_level_is_proposed_only_if_its_answers_are_saved(node, level, is_proposed, lacking):
    node(level)
    done = CliRunner().invoke(program, ["validate", "--from", "kept"])
    (note,) = (line for line in done.stderr.splitlines() if "the saved answers lack what" in line)
    assert lacking in note
    assert ("drive-health" in done.stdout) == is_proposed
