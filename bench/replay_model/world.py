"""The fleet as time passes: its counters grow, faults build up and fail, and people do what is planned."""

import itertools
import math
import random as random_module

from replay_model import plan
from replay_model.machines import LINKS, NVLINK, fleet, habits, poisson


class World:
    """``now`` is true time in days. All that happens is drawn from the seed."""

    def __init__(self, seed, nodes, days, times):
        self.random = random = random_module.Random(f"replay {seed}")
        self.days, self.now = days, 0.0
        self.habits = habits(random)
        self.factory, self.nodes = fleet(random, nodes, self.habits)
        by_node, self.lemons = plan.faults(random, self.nodes, days, times)
        self.faults = [fault for own in by_node.values() for fault in own]
        self.events = plan.events(random, self.nodes, days, by_node)
        self.rolled_out, self.roll_out_rate = None, math.exp(random.uniform(0, math.log(100)))
        self.clock_back = 0.0
        self.clock_days = [event.day for event in self.events if event.what == "clock-control"]
        self._grown = dict.fromkeys(self.nodes, 0.0)
        self._place = {part: (node.name, s) for node in self.nodes.values() for s, part in node.slots.items()}
        self._due = [(event.day, number, "event", event) for number, event in enumerate(self.events)]
        for number, fault in enumerate(self.faults):
            self._due += [(fault.fails, number, "fail", fault), (fault.fails + fault.outage, number, "repair", fault)]
            if fault.part:
                fault.part.faults.append(fault)
            if fault.onset < 0 and fault.kind != "hot":
                self._count(fault, fault.part, fault.reached(0.0))
        self._due.sort(key=lambda due: due[:3])

    def advance(self, until):
        """Let time pass, to the day ``until``."""
        while self._due and self._due[0][0] <= until:
            day, _, what, subject = self._due.pop(0)
            {"event": self._event, "fail": self._fail, "repair": self._repair}[what](subject, day)
        for node in self.nodes.values():
            self._grow(node, until)
        self.now = until

    def place(self, fault):
        """Return the node and the slot of a fault: those where its part is now."""
        return self._place[fault.part] if fault.part else (fault.node, "node")

    def failing(self):
        """Return the faults that have failed and are not repaired."""
        return [f for f in self.faults if f.fails <= self.now and not f.is_over]

    def _grow(self, node, until):
        began, self._grown[node.name] = self._grown[node.name], until
        if until <= began:
            return
        rates = [(part, name, rate) for part in node.slots.values() for name, rate in part.rates]
        weights = list(itertools.accumulate(rate for _, _, rate in rates))
        for _ in range(poisson(self.random, weights[-1] * (until - began))):
            part, name, _ = self.random.choices(rates, cum_weights=weights)[0]
            is_burst = self.random.random() < self.habits.burst
            number = min(10000, int(self.random.paretovariate(self.habits.tail))) if is_burst else 1
            part.count(name, number, self._link(node) if name in NVLINK else None)
        for part in node.slots.values():
            for fault in part.faults:
                if fault.builds_up and fault.kind != "hot" and fault.onset < until and not fault.is_over:
                    self._build_up(fault, part, max(began, fault.onset), min(until, fault.fails))
        if self.rolled_out and node.name in self.rolled_out:
            for part in node.slots.values():
                if part.kind == "gpu":
                    for _ in range(min(200, poisson(self.random, self.roll_out_rate * (until - began)))):
                        part.count("replay_errors", 1, self._link(node))

    def _link(self, node):
        return self.random.randrange(LINKS[node.model])

    def _build_up(self, fault, part, began, until):
        if until > began and self.random.random() < fault.activity:
            uneven = self.random.lognormvariate(0, 0.5)
            self._count(fault, part, (fault.reached(until) - fault.reached(began)) * uneven / fault.activity)

    def _count(self, fault, part, mean):
        number = poisson(self.random, mean)
        if number and fault.kind == "nvlink":
            part.count("recovery_errors", number, fault.link)
            part.count("replay_errors", poisson(self.random, 2 * number), fault.link)
        elif number:
            names = {"ecc": "ecc_corrected_volatile", "symbols": "symbol_error", "rows": "rows_remapped_corrected"}
            part.count(names[fault.kind], number)

    def _event(self, event, day):
        nodes = [self.nodes[name] for name in event.nodes]
        for node in nodes:
            self._grow(node, day)
            node.marks.append((day, event.what, event.slots or None))
        if event.what == "swap":
            (a, b), (at_a, at_b) = nodes, event.slots
            a.slots[at_a], b.slots[at_b] = b.slots[at_b], a.slots[at_a]
            self._place |= {a.slots[at_a]: (a.name, at_a), b.slots[at_b]: (b.name, at_b)}
        if event.what in ("reboot", "swap", "roll-out"):
            for node in nodes:
                node.reboot()
                node.is_reachable = not event.is_unreachable
        if event.what == "cable":
            part = nodes[0].slots[event.slots[0]]
            part.restart()
            for fault in part.faults:
                fault.is_over = fault.is_over or (fault.kind == "symbols" and fault.onset <= day)
        if event.what == "roll-out":
            self.rolled_out = frozenset(event.nodes)
        if event.what == "clock-control":
            self.clock_back = 1 / 24

    def _fail(self, fault, day):
        if not fault.is_over:
            node = self.nodes[self.place(fault)[0]]
            self._grow(node, day)
            node.until = max(node.until, day + fault.outage)

    def _repair(self, fault, day):
        if fault.is_over:
            return
        name, slot = self.place(fault)
        self._grow(self.nodes[name], day)
        fault.is_over = True
        if fault.part and fault.is_replaced and fault.kind != "lemon":
            self._replace(fault.part, name, slot)
        self.nodes[name].reboot()
        self.nodes[name].marks.append((day, "repair", (slot,)))

    def _replace(self, old, name, slot):
        new = self.factory.part(old.kind, old.model)
        self.nodes[name].slots[slot] = new
        self._place[new] = name, slot
        for fault in [f for f in old.faults if not f.is_over and f.onset > self._grown[name]]:
            fault.part = new
            old.faults.remove(fault)
            new.faults.append(fault)

    def figures(self, node):
        """Return what a run reads of a node now."""
        found = {}
        for slot, part in node.slots.items():
            found.update((f"{slot}.{name}", value) for name, value in (part.volatile | part.remembers).items())
        own, random = self.habits, self.random
        hall = own.ambient + own.season * math.sin(self.now / 58) + own.daily * math.sin(2 * math.pi * self.now)
        is_busy, first = random.random() < own.busy, 8 if random.random() >= own.partial else random.randrange(1, 8)
        for n in range(8):
            part, load = node.slots[f"gpu{n}"], random.uniform(0.6, 1.0) if is_busy and n < first else 0.0
            heat = hall + node.warmth + node.slot_warmth[n] + part.warmth + own.heat * load
            heat += sum(f.reached(self.now) for f in part.faults if f.kind == "hot" and not f.is_over)
            heat += random.gauss(0, own.jitter) + (random.uniform(5, 15) if random.random() < own.outliers else 0)
            found[f"gpu{n}.temperature_celsius"] = float(round(heat))
            found[f"gpu{n}.memory_temperature_celsius"] = float(round(heat + 6 + random.gauss(0, own.jitter)))
            found[f"gpu{n}.power_draw_watts"] = round(72 + 560 * load + random.gauss(0, 3), 2)
            found[f"gpu{n}.graphics_mhz"] = 1980.0 if load else 345.0
            found[f"gpu{n}.memory_total_mib"] = 81559.0
            found[f"gpu{n}.memory_used_mib"] = float(round(70000 * load))
        return found
