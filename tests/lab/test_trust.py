"""``gpuops trust`` on the lab: keys are shown, recorded once they are accepted, and known from then on."""

import json

import pytest
from tests.program import run_gpuops


@pytest.fixture
def trust(lab, home):
    """Return a function that runs the command for two hosts that nobody trusts yet."""
    hosts = ", ".join(
        f"{name}: {{ansible_host: 127.0.0.1, ansible_port: {lab.hosts[name].port}}}" for name in lab.hosts
    )
    (home / "hosts.yml").write_text(f"all: {{hosts: {{{hosts}}}}}\n")

    def run(*words, code=0):
        done = run_gpuops("trust", "gpu01,gpu02", "-i", "hosts.yml", *words, cwd=home)
        assert done.returncode == code, done
        return done

    return run


def test_keys_are_shown_and_recorded_only_once_they_are_accepted(trust, home):
    shown = trust(code=3)
    assert shown.stdout.count("SHA256:") == 2
    assert "gpu02: not recorded; --yes records it without asking" in shown.stderr
    assert not (home / ".ssh" / "known_hosts").exists()
    accepted = trust("--yes", "-o", "trust.txt")
    recorded = [f"{name}: recorded in {home / '.ssh' / 'known_hosts'}" for name in ("gpu01", "gpu02")]
    assert (home / "trust.txt").read_text().splitlines() == recorded
    assert set(recorded) < set(accepted.stdout.splitlines())
    assert trust().stdout == "gpu01: already known\ngpu02: already known\n"


def test_json_asks_nothing_and_has_every_fingerprint(trust):
    hosts = json.loads(trust("--json", code=3).stdout)["hosts"]
    assert [each["state"] for each in hosts.values()] == ["not_recorded"] * 2
    words = ("--fingerprint", hosts["gpu01"]["keys"]["ssh-ed25519"], "--json")
    hosts = json.loads(trust(*words, code=3).stdout)["hosts"]
    assert [each["state"] for each in hosts.values()] == ["recorded", "not_recorded"]
    assert "none of its keys has the fingerprint" in hosts["gpu02"]["why"]
