"""No GPU and no node has become hotter than it was and than its peers."""

from collections.abc import Iterator

from gpuops import Finding, NotApplicable, Profile, check
from gpuops.trends import Record, drifting, past


@check(
    needs=past,
    severity="warn",
    tags=("quick", "over-time", "gpu", "temperature"),
    applies_to="nodes with at least 13 runs in the store in which no GPU idled beside busy ones",
    catches="paste that dries, a fan that slows, a filter that clogs: weeks before the card slows down",
    fix="check the card's airflow and its mounting at the next maintenance",
)
def drift(record: Record, _profile: Profile) -> Iterator[Finding | NotApplicable]:
    """A GPU is compared with the others of its node, a node with like nodes at the same load, both with their own past.

    What a GPU is hotter for the power that it draws is subtracted first. The check uses medians, median absolute
    deviations of at least 2 °C, and a CUSUM with slack 1 and limit 8 over the last five runs. Less than 5 °C is never a
    finding. With normally distributed readings, it gives one false alarm in 17,000 node-months.

    Source: D. Siegmund, Sequential Analysis, 1985, chapter 2.
    """
    yield from drifting(record)
