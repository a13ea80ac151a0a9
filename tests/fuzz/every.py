"""Every reader of foreign bytes, by name."""

import tests.fuzz.of_nodes
import tests.fuzz.of_users  # noqa: F401 - both fill READERS
from tests.fuzz.reader import READERS

__all__ = ["READERS"]
