"""What a finding over time is worth, by what was planted."""

import re

from replay_model.machines import CONGESTION

DAY_OF_MARK = {"reboot": 1.0, "repair": 1.0, "cable": 3.0, "clock-node": 1.0, "swap": 99.0, "roll-out": 99.0}
"""For how many days a finding is put down to what was done to the node; choices of this count. A roll-out goes before
all others."""

MUCH, OFTEN_PER_DAY = 5, 0.1
"""A well part is called noisy from so many times the usual rate on, if that is so often; choices of this count."""


def slot_of(node, part):
    """Return the slot that a finding names, without what it says about it (a link); "node" if it names none."""
    named = [slot for slot in node.slots if re.match(rf"{re.escape(slot)}(?!\w)", part)]
    return max(named, key=len, default="node")


def truth(world, name, part):
    """Return what was planted there: its kind, words, and the fault.

    Kinds are `building`, `failed`, `aftermath`, `noisy` (well, but it always counts more than its like), what was done
    to the node, and `nothing`.
    """
    slot = slot_of(world.nodes[name], part)
    begun = [f for f in world.faults if f.onset <= world.now and _is_at(world, f, name, slot)]
    for fault in begun:
        if fault.builds_up and world.now < fault.fails and not fault.is_over:
            return "building", f"{fault.kind}, from day {fault.onset:.1f}, fails on day {fault.fails:.1f}", fault
    for fault in begun:
        if not fault.is_over:
            return "failed", f"{fault.kind}, failed on day {fault.fails:.1f}", fault
    if begun:
        return "aftermath", f"{begun[-1].kind}, failed on day {begun[-1].fails:.1f}, repaired since", begun[-1]
    return *_of_healthy(world, world.nodes[name], slot), None


def _of_healthy(world, node, slot):
    noise = _noise(world, node.slots.get(slot))
    if noise and not _is_rolled_out(world, node.name, slot):
        return "noisy", f"healthy; always counts {noise}"
    for day, what, slots in sorted(node.marks, key=lambda mark: (mark[1] == "roll-out", mark[0]), reverse=True):
        if world.now - day <= DAY_OF_MARK[what] and _concerns(what, slots, slot):
            return what, f"healthy; {what} on day {day:.1f}"
    if any(0 <= world.now - day <= 1 for day in world.clock_days):
        return "clock-control", "healthy; the control machine's clock went back"
    return "nothing", "healthy"


def _is_rolled_out(world, name, slot):
    return slot.startswith("gpu") and name in (world.rolled_out or ())


def _noise(world, part):
    """Return in words how often a part counts on average, if that is often, and much for its kind."""
    usual = world.habits.rates
    own = [(rate, name) for name, rate in part.rates if name not in CONGESTION] if part else []
    much = [(rate, name) for rate, name in own if rate >= max(MUCH * usual[name], OFTEN_PER_DAY)]
    return ", ".join(f"{rate:.2f} {name} a day (the median is {usual[name]:.4f})" for rate, name in much)


def _is_at(world, fault, name, slot):
    at, own = world.place(fault)
    return at == name and slot in (own, "node")


def _concerns(what, slots, slot):
    if what == "roll-out":
        return slot.startswith("gpu")
    return what not in ("cable", "swap") or slot in slots
