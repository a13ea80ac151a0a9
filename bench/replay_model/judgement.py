"""What a finding over time is worth, by what was planted."""

import re

DAY_OF_MARK = {"reboot": 1.0, "repair": 1.0, "cable": 3.0, "clock-node": 1.0, "swap": 99.0, "roll-out": 99.0}
"""For how many days a finding is put down to what was done to the node; choices of this count. A roll-out goes before
all others."""


def slot_of(node, part):
    """Return the slot that a finding names, without what it says about it (a link); "node" if it names none."""
    named = [slot for slot in node.slots if re.match(rf"{re.escape(slot)}(?!\w)", part)]
    return max(named, key=len, default="node")


def truth(world, name, part):
    """Return what was planted there: (`building`, `failed`, `aftermath`, a mark or `nothing`, words, the fault)."""
    node, now = world.nodes[name], world.now
    slot = slot_of(node, part)
    begun = [f for f in world.faults if f.onset <= now and _is_at(world, f, name, slot)]
    for fault in begun:
        if fault.builds_up and now < fault.fails and not fault.is_over:
            return "building", f"{fault.kind}, from day {fault.onset:.1f}, fails on day {fault.fails:.1f}", fault
    for fault in begun:
        if not fault.is_over:
            return "failed", f"{fault.kind}, failed on day {fault.fails:.1f}", fault
    if begun:
        return "aftermath", f"{begun[-1].kind}, failed on day {begun[-1].fails:.1f}, repaired since", begun[-1]
    for day, what, slots in sorted(node.marks, key=lambda mark: (mark[1] == "roll-out", mark[0]), reverse=True):
        if now - day <= DAY_OF_MARK[what] and _concerns(what, slots, slot):
            return what, f"healthy; {what} on day {day:.1f}", None
    if any(0 <= now - day <= 1 for day in world.clock_days):
        return "clock-control", "healthy; the control machine's clock went back", None
    return "nothing", "healthy", None


def _is_at(world, fault, name, slot):
    at, own = world.place(fault)
    return at == name and slot in (own, "node")


def _concerns(what, slots, slot):
    if what == "roll-out":
        return slot.startswith("gpu")
    return what not in ("cable", "swap") or slot in slots
