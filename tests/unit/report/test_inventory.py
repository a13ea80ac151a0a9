"""The tree of groups."""

from gpuops.inventory import Inventory
from gpuops.report.inventory import tree

TEXT = "[empty]\n[gpu]\ng1\ng2\n[cpu]\nc1\n[big:children]\ngpu\nempty\n"


def drawn(tmp_path, text, limit="all"):
    (tmp_path / "hosts").write_text(text)
    groups = Inventory.load(tmp_path / "hosts").limit(limit).groups
    return "\n".join(tree(groups, is_whole=limit == "all"))


def test_a_group_without_hosts_says_so_and_ungrouped_is_drawn_only_with_hosts(tmp_path):
    assert drawn(tmp_path, TEXT) == (
        "@all:\n  |--@cpu:\n  |  |--c1\n"
        "  |--@big:\n  |  |--@gpu:\n  |  |  |--g1\n  |  |  |--g2\n  |  |--@empty: no hosts"
    )
    assert drawn(tmp_path, "g1\n") == "@all:\n  |--@ungrouped:\n  |  |--g1"


def test_of_a_limited_inventory_only_groups_with_hosts_are_drawn(tmp_path):
    assert drawn(tmp_path, TEXT, "c1") == "@all:\n  |--@cpu:\n  |  |--c1"
    assert drawn(tmp_path, TEXT, "g2") == "@all:\n  |--@big:\n  |  |--@gpu:\n  |  |  |--g2"
