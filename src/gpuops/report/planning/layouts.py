"""Text report of a search for layouts: the verdict, the fastest layouts, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.layout import missing_layers
from gpuops.planner.estimate import Estimate
from gpuops.planner.memory import USABLE, USUAL_HOST_BYTES
from gpuops.planner.search import WayOut
from gpuops.report.page import Page, clean
from gpuops.report.planning import outlook
from gpuops.report.planning.outlook import step
from gpuops.results.layout_plan import Advice, Compared, LayoutPlan

_GIB = 1 << 30
_HEADINGS = ("step", "tokens/s", "MFU", "GPU", "most time", "layout")
_CAUSES = {"gemm": "matrix products", "p2p": "sending between stages"}
_ANSWERS = {
    "gpu": "bigger GPUs",
    "gpus": "more GPUs",
    "offload": "CPU and NVMe",
    "nodes": "fewer nodes",
    "batch": "another batch",
}
_KINDS = {"model": "model FLOPs, whole attention", "model_causal": "model FLOPs, half the attention"}


def lines(plan: LayoutPlan, page: Page) -> Iterator[str]:
    """Yield the job and its cluster, the fastest layouts or what would help, and what was asked for besides."""
    yield from page.labelled("", _heading(plan), 0)
    yield ""
    if plan.found.best:
        yield from page.columns([_HEADINGS, *map(_row, plan.found.best)])
        yield ""
        yield from page.labelled("", _counts(plan), 0)
        yield from _pipeline(plan, page)
        yield from _left_out(plan, page)
        if plan.training.tiled:
            yield from page.labelled("", f"{_tiled(plan.found.best[0].tiles)} in the first layout.", 0)
        if plan.found.best[0].host_bytes and not plan.cluster.host_bytes:
            needed = f"{_gib(plan.found.best[0].host_bytes)} of host memory in each node"
            yield from page.labelled("", f"The first layout needs {needed}; how much a node has is unknown.", 0)
        yield from outlook.price_lines(plan.prices, page)
        if plan.outlook:
            yield ""
            yield from outlook.lines(plan.outlook, page, every=bool(plan.advice))
    else:
        yield from _without_fit(plan, page)
        yield from _left_out(plan, page)
    if plan.advice and plan.best:
        yield ""
        yield from breakdown(plan.best, page)
    for each in plan.compared:
        yield ""
        yield from page.labelled("", _told(each, plan.best), 0)
    for rule in plan.advice:
        yield from _rule(rule, plan.best, page)


def breakdown(estimate: Estimate, page: Page) -> Iterator[str]:
    """Yield where the time of a step and the memory of a GPU go, the largest first."""
    total = estimate.step_seconds
    parts = sorted(estimate.seconds.items(), key=lambda part: -part[1])
    times = [f"{_words(name)} {step(value)} ({100 * value / total:.0f} %)" for name, value in parts if value]
    sizes = sorted(estimate.memory_bytes.items(), key=lambda part: -part[1])
    yield from page.labelled("time", ", ".join(times), 9)
    yield from page.labelled("memory", ", ".join(f"{_words(n)} {_gib(v)}" for n, v in sizes if v >= _GIB / 100), 9)


def _heading(plan: LayoutPlan) -> str:
    model, cluster, training = plan.model, plan.cluster, plan.training
    size = f"{model.total_parameters() / 1e9:.3g} billion parameters"
    job = f"global batch {training.global_batch}, sequences of {training.sequence} tokens, {training.precision}"
    gpus = f"{cluster.gpus} {cluster.gpu.name}"
    if cluster.nodes > 1:
        gpus = f"{gpus} in {cluster.nodes} nodes of {cluster.gpus_per_node}"
    return clean(f"{model.name}, {size}   {cluster.name}: {gpus}   {job}")


def _row(estimate: Estimate) -> tuple[str, ...]:
    return (
        step(estimate.step_seconds),
        f"{estimate.tokens_per_second:,.0f}",
        f"{100 * estimate.mfu:.1f} %",
        _gib(estimate.gpu_bytes),
        _words(estimate.limit),
        str(estimate.layout),
    )


def _tiled(tiles: int) -> str:
    return f"Linear layers are computed in {tiles} tiles" if tiles > 1 else "Every linear layer fits whole, untiled"


def _counts(plan: LayoutPlan) -> str:
    found, kind = plan.found, plan.found.best[0].flops_kind
    link = "NVLink" if plan.cluster.has_nvlink else "PCIe"
    sources = "; ".join(dict.fromkeys(plan.cluster.sources.values()))
    return clean(
        f"{found.fitting:,} of {found.scored:,} valid layouts fit. MFU counts {_KINDS.get(kind, kind)}. "
        f"{link} {plan.cluster.nvlink_gb_per_s:.3g} and network {plan.cluster.network_gb_per_s:.3g} GB/s a GPU: "
        f"{sources}."
    )


def _pipeline(plan: LayoutPlan, page: Page) -> Iterator[str]:
    """Yield how the first layout shares layers that its stages do not divide."""
    layout, layers = plan.found.best[0].layout, plan.model.blocks
    missing = missing_layers(layers, layout.pp * layout.vpp)
    if missing:
        shorter = "the last" if missing == 1 else "the first and the last stage"
        text = f"{layers} layers on {layout.pp} stages: {(layers + missing) // layout.pp} each, one less for {shorter}."
        yield from page.labelled("", f"The first layout has {text}", 0)


def _left_out(plan: LayoutPlan, page: Page) -> Iterator[str]:
    if plan.left_out:
        yield from page.labelled("", clean(f"Not searched: {'; '.join(plan.left_out)}."), 0)


def _without_fit(plan: LayoutPlan, page: Page) -> Iterator[str]:
    closest = plan.found.closest
    if plan.why_none:
        yield from page.labelled("", clean(f"No layout is possible: {plan.why_none}."), 0)
    if closest:
        size, host = plan.cluster.gpu.memory_bytes, plan.cluster.host_bytes or USUAL_HOST_BYTES
        needed, room = f"{_gib(closest.gpu_bytes)}", f"{_gib(USABLE * size)} of a GPU's {_gib(size)} may be used"
        if closest.gpu_bytes <= USABLE * size:
            needed, room = f"{_gib(closest.host_bytes)} of host memory in each node", f"{_gib(host)} are there"
            room = room if plan.cluster.host_bytes else f"{_gib(host)} are assumed"
        room = f"the closest, {closest.layout}, needs {needed}; {room}"
        yield from page.labelled("", f"None of {plan.found.scored:,} valid layouts fits: {room}.", 0)
    yield from page.labelled("", "What would help, and how much of it is enough:", 0)
    rows = [(_ANSWERS[each.what], *_answer(each)) for each in plan.answers]
    yield from page.columns(rows)


def _answer(answer: WayOut) -> tuple[str, str, str]:
    if answer.estimate is None:
        return ("nothing that was tried is enough", "", "")
    return (answer.change, step(answer.estimate.step_seconds), str(answer.estimate.layout))


def saved(estimate: Estimate) -> str:
    """Return the layout as the YAML file that ``--layout`` takes, with its estimate as a comment."""
    about = f"{step(estimate.step_seconds)} a step, {_gib(estimate.gpu_bytes)} on the fullest GPU"
    about += f", linear layers in {estimate.tiles} tiles" if estimate.tiles > 1 else ""
    return f"# estimate: {about}\nlayout: {estimate.layout}\n"


def _told(each: Compared, best: Estimate | None) -> str:
    if each.estimate is None:
        return clean(f"{each.name}: {each.why}")
    figures = f"{step(each.estimate.step_seconds)} a step, {_gib(each.estimate.gpu_bytes)}"
    tiles = f" and {each.estimate.tiles} tiles" if each.estimate.tiles > 1 else ""
    text = f"{each.name}: {figures} with {each.estimate.layout}{tiles}"
    if each.why:
        return clean(f"{text}; it {each.why}")
    return clean(f"{text}; {_against(each.estimate, best)}" if best else text)


def _against(estimate: Estimate, best: Estimate) -> str:
    """Return how much slower ``estimate`` is, and the causes that cost it most."""
    more = estimate.step_seconds / best.step_seconds - 1
    if abs(more) < 0.0005:
        return "as fast as the best"
    if more < 0:
        return f"{-100 * more:.1f} % faster than the first layout, whose search leaves this one out"
    lost = {name: estimate.seconds[name] - best.seconds[name] for name in estimate.seconds}
    worst = sorted(lost, key=lambda name: -lost[name])[:2]
    causes = ", ".join(f"{_words(name)} +{step(lost[name])}" for name in worst if lost[name] > 0)
    return f"{100 * more:.1f} % slower: {causes}"


def _rule(advice: Advice, best: Estimate | None, page: Page) -> Iterator[str]:
    yield ""
    broken = "" if advice.kept else " (the best layout breaks it)"
    yield from page.labelled(advice.rule, clean(advice.text + broken), 5)
    for each in advice.recommended:
        yield from page.labelled("", _told(each, best), 5)


def _words(name: str) -> str:
    return _CAUSES.get(name, name.replace("_", " "))


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB"
