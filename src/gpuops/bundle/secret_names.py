"""Names of settings whose value is a secret."""

PRIVATE_NAME = (
    r"[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential)[\w.-]*"
)
"""Pattern of such a name, in any case; a part of it is enough (``HF_TOKEN``, ``db.password``)."""
