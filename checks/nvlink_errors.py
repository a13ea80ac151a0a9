"""No NVLink retrains while the others do not, and none has an error rate that corrections no longer hide."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median_low

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.nvidia.nvlink_errors import LinkErrors, link_errors

_EFFECTIVE_BER = 1e-12


@check(
    needs=link_errors,
    severity="fail",
    tags=("standard", "gpu", "nvlink", "nvidia-smi"),
    catches="a link that retrains days before it fails, and stalls what crosses it each time",
    fix="reset the GPU; if the link retrains again, reseat the GPU, or replace the cable, tray or baseboard",
)
def nvlink_errors(
    links_or_unknown: Mapping[str, Mapping[int, LinkErrors] | Unknown], _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """A retrained link warns if at least half of the node's links never retrained; failed retraining fails.

    The counters start when the driver is loaded, so a count alone proves nothing. The effective error rate, after
    correction, must not be above 1e-12. Source: NVIDIA DCGM, DcgmGPUHardwareLimits.h and DcgmHealthWatch.cpp (rates,
    failed recoveries); marin-community/marin issue 9086 (505 recoveries of one link of 5,760, five days before its Xid
    149); aws/eks-node-monitoring-agent issue 261 (lifetime counters).
    """
    unread = [Unknown(f"{gpu}: {own.why}") for gpu, own in links_or_unknown.items() if isinstance(own, Unknown)]
    yield from unread
    links_by_gpu = {gpu: own for gpu, own in links_or_unknown.items() if not isinstance(own, Unknown)}
    every = [(gpu, number, link) for gpu, links in links_by_gpu.items() for number, link in links.items()]
    if not every:
        if not unread:
            yield NotApplicable("no GPU has an NVLink")
        return
    counted = [link.recoveries for _, _, link in every if link.recoveries is not None]
    if not counted:
        yield Unknown("nvidia-smi nvlink -e does not count how often links retrain")
    usual = median_low(counted) if counted else 0
    for gpu, links in links_by_gpu.items():
        failed = {number: link.counts.get("link_recovery_failed_events", 0) for number, link in links.items()}
        retrained = {number: link.recoveries or 0 for number, link in links.items() if not failed[number]}
        rates = {number: link.rates.get("effective_ber", 0.0) for number, link in links.items()}
        yield from _of(gpu, {n: c for n, c in failed.items() if c}, "could not be retrained", "failed")
        if not usual:
            found = _of(gpu, {n: c for n, c in retrained.items() if c}, "retrained, others did not", "recovered")
            yield from (replace(finding, severity="warn") for finding in found)
        yield from _ber(gpu, {number: rate for number, rate in rates.items() if rate > _EFFECTIVE_BER})


def _of(gpu: str, counts: Mapping[int, int], what: str, code: str) -> Iterator[Finding]:
    if counts:
        links = ", ".join(f"link {number} ({count} times)" for number, count in sorted(counts.items()))
        message = f"NVLink {links} {what}"
        yield Finding(message, expected=0, found=sum(counts.values()), part=gpu, code=code)


def _ber(gpu: str, rates: Mapping[int, float]) -> Iterator[Finding]:
    if rates:
        links = ", ".join(f"link {number} ({rate:g})" for number, rate in sorted(rates.items()))
        message = f"NVLink {links}: effective bit error rate above {_EFFECTIVE_BER:g}"
        yield Finding(message, expected=_EFFECTIVE_BER, found=max(rates.values()), part=gpu, code="ber")
