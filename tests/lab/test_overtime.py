"""gpuops validate on a lab whose fault builds up: the part is named, and what only looks like it is not."""

import json
import sqlite3
import time

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster

CHECK = "counters-over-time"


@pytest.fixture
def later(lab, tmp_path):
    """Return a function that validates five hours after the run before, and returns the findings of the check."""
    state = lab.folder / ".gpuops" / "state.db"

    def age():
        with sqlite3.connect(state) as database:
            for number, began in database.execute("SELECT number, began FROM records").fetchall():
                query = "SELECT strftime('%Y-%m-%dT%H:%M:%S+00:00', ?, '-5 hours')"
                (older,) = database.execute(query, (began,)).fetchone()
                database.execute("UPDATE records SET began = ? WHERE number = ?", (older, number))

    def validate(*words):
        if state.exists():
            age()
        options = ("-i", lab.folder / "inventory.yml", "--format", "json", *(words or ("--only", CHECK)))
        done = run_gpuops("validate", *options, cwd=tmp_path)
        hosts = json.loads(done.stdout)["hosts"]
        assert not [each for host in hosts.values() for each in host["unknown"]]
        found = [(name, each) for name, host in hosts.items() for each in host["findings"]]
        return [(name, each["part"], each["code"], each["severity"]) for name, each in found if each["check"] == CHECK]

    return validate


@pytest.mark.long
def test_link_that_retrains_run_after_run_is_named_and_a_reboot_ends_it(lab, plant, later, ssh):
    assert later() == []
    for count in (3, 5, 9):
        plant(f"gpu02:gpu3:nvlink-retrained={count}")
        assert later() == []
    plant("gpu02:gpu3:nvlink-retrained=12")
    assert later() == [("gpu02", "gpu3", "nvlink-recovery", "warn")]
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = ssh("gpu02", boot).out
    ssh("gpu02", "sudo systemctl reboot")
    for _ in range(50):
        if ssh("gpu02", boot).out not in (b"", before):
            break
        time.sleep(0.2)
    plant("gpu02:gpu3:nvlink-retrained=40")  # links train when a node boots
    assert later() == []


@pytest.mark.long
def test_card_takes_what_it_counted_to_another_node(lab, plant, later):
    card, other = "1650000000042", "1650000000043"
    plant(f"gpu01:gpu5:card={card}", f"gpu02:gpu1:card={other}")
    assert later() == []
    for count in (1, 2):
        plant(f"gpu01:gpu5:rows-remapped={count}")
        assert later() == []
    cluster.clear(lab.folder, [])
    plant(f"gpu01:gpu5:card={other}", f"gpu02:gpu1:card={card}", "gpu02:gpu1:rows-remapped=3")
    assert later() == [("gpu02", "gpu1", "rows-corrected", "warn")]  # the third time, and twice of it elsewhere


@pytest.mark.long
def test_new_cards_with_counts_of_their_own_accuse_nobody(plant, later):
    plant("gpu01:gpu3:nvlink-retrained=5")
    for number in range(6):
        assert later() == []
        plant(f"gpu01:gpu3:card=165000000000{number}", f"gpu01:gpu3:nvlink-retrained={200 + 60 * number}")
