"""PyTorch on a lab host: the versions that a job would find. Nothing computes here."""

from __future__ import annotations

__version__ = "2.5.1+cu124"


class version:  # noqa: N801 - torch's name
    """Versions that torch was built with."""

    cuda = "12.4"


class cuda:  # noqa: N801 - torch's name
    """The part of torch.cuda that only names a version."""

    class nccl:  # noqa: N801 - torch's name
        """The NCCL that came with torch."""

        @staticmethod
        def version() -> tuple[int, int, int]:
            """Return NCCL's version."""
            return 2, 21, 5
