"""The tables of the store, as the statements that upgrade a file from each version to the next.

``runs``, ``events`` and ``gates`` are the life cycle of nodes. A row of ``records`` is one run of a command that
judges or measures. ``visits`` has what it saw of each node, ``findings`` and ``parts`` how long each was there,
``links`` what was measured between two nodes, and ``nodes`` since when each is visited. ``texts`` holds what many
visits have in common, once.
"""

SCHEMAS = (
    """
CREATE TABLE runs (id TEXT PRIMARY KEY, what TEXT NOT NULL, who TEXT NOT NULL, began TEXT NOT NULL, ended TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL, why TEXT NOT NULL,
                     run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE INDEX events_of_node ON events (node, id);
CREATE TABLE gates (node TEXT NOT NULL, gate TEXT NOT NULL, run TEXT NOT NULL REFERENCES runs (id), at TEXT NOT NULL,
                    fingerprint TEXT NOT NULL, PRIMARY KEY (node, gate));
""",
    # before this column existed, the cause of these two was read from the reason
    """
ALTER TABLE events ADD COLUMN cause TEXT NOT NULL DEFAULT '';
UPDATE events SET cause = 'stopped' WHERE why GLOB 'stopped at *';
UPDATE events SET cause = 'demoted' WHERE state = 'provisioned'
                                          AND why GLOB 'no longer the machine that was tested: *';
""",
    """
CREATE TABLE records (number INTEGER PRIMARY KEY AUTOINCREMENT, verb TEXT NOT NULL, level TEXT NOT NULL,
                      began TEXT NOT NULL, seconds REAL NOT NULL, conclusion TEXT NOT NULL, who TEXT NOT NULL,
                      command TEXT NOT NULL, inventory TEXT NOT NULL, nodes INTEGER NOT NULL,
                      unhealthy INTEGER NOT NULL, findings INTEGER NOT NULL);
CREATE INDEX records_by_time ON records (began);
CREATE TABLE nodes (node TEXT PRIMARY KEY, first_at TEXT NOT NULL, last_at TEXT NOT NULL, visits INTEGER NOT NULL);
CREATE TABLE texts (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, content BLOB NOT NULL);
CREATE TABLE visits (node TEXT NOT NULL, record INTEGER NOT NULL REFERENCES records (number) ON DELETE CASCADE,
                     status TEXT NOT NULL, why TEXT NOT NULL, boot TEXT NOT NULL,
                     checks INTEGER NOT NULL REFERENCES texts (id), shape INTEGER NOT NULL REFERENCES texts (id),
                     names INTEGER NOT NULL REFERENCES texts (id), figures BLOB NOT NULL, findings TEXT NOT NULL,
                     PRIMARY KEY (node, record)) WITHOUT ROWID;
CREATE INDEX visits_of_record ON visits (record);
CREATE TABLE findings (id INTEGER PRIMARY KEY, node TEXT NOT NULL, check_name TEXT NOT NULL, part TEXT NOT NULL,
                       code TEXT NOT NULL, status TEXT NOT NULL, severity TEXT NOT NULL, message TEXT NOT NULL,
                       fix TEXT NOT NULL, nodes TEXT NOT NULL, first INTEGER NOT NULL, first_at TEXT NOT NULL,
                       last INTEGER NOT NULL, last_at TEXT NOT NULL, times INTEGER NOT NULL, gone INTEGER,
                       gone_at TEXT);
CREATE INDEX findings_of_node ON findings (node, id);
CREATE INDEX open_findings ON findings (node) WHERE gone IS NULL;
CREATE TABLE parts (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, serial TEXT NOT NULL, model TEXT NOT NULL,
                    node TEXT NOT NULL, slot TEXT NOT NULL, first INTEGER NOT NULL, first_at TEXT NOT NULL,
                    last INTEGER NOT NULL, last_at TEXT NOT NULL, gone INTEGER);
CREATE INDEX parts_by_serial ON parts (serial, id);
CREATE INDEX parts_of_node ON parts (node) WHERE gone IS NULL;
CREATE TABLE links (record INTEGER NOT NULL REFERENCES records (number) ON DELETE CASCADE, a TEXT NOT NULL,
                    b TEXT NOT NULL, rail INTEGER, gb_per_s REAL NOT NULL, expected_gb_per_s REAL);
CREATE INDEX links_between ON links (a, b, record);
CREATE INDEX links_of_record ON links (record);
""",
    # `checks` failed when the event closed the node; `closed` marks what counts against the caps
    """
ALTER TABLE events ADD COLUMN checks TEXT NOT NULL DEFAULT '[]';
ALTER TABLE events ADD COLUMN closed INTEGER NOT NULL DEFAULT 0;
UPDATE events SET closed = 1
 WHERE state <> 'admitted' AND 'admitted' = (SELECT earlier.state FROM events AS earlier
                                              WHERE earlier.node = events.node AND earlier.id < events.id
                                              ORDER BY earlier.id DESC LIMIT 1);
CREATE INDEX closings ON events (at) WHERE closed = 1;
""",
    # a machine that came back under another name; its rows have the new one
    """
CREATE TABLE renames (former TEXT NOT NULL, node TEXT NOT NULL, record INTEGER NOT NULL, at TEXT NOT NULL);
""",
)
