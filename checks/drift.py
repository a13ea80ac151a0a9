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
    """The check judges how far a GPU is from the others of its node, and a node from others at the same load.

    What a GPU is hotter because it draws more power is subtracted first. The rest is compared with its own past: a
    CUSUM with slack 1 and limit 8 over the last five runs, in median absolute deviations. For a GPU these are at least
    1 °C, and at least what all GPUs of its kind differ by from one run to the next; for a node, 2 °C. Less than 4 °C or
    2.5 deviations is never a finding. If readings are normally distributed, there is one false alarm in 17,000
    node-months.

    Source: D. Siegmund, Sequential Analysis, 1985, chapter 2.
    """
    yield from drifting(record)
