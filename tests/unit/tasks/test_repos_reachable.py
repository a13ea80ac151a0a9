import pytest

from gpuops import Failed

FETCHED = "Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]\nReading package lists...\n"
REFUSED = """\
E: Failed to fetch http://deb.invalid/debian/dists/bookworm/InRelease  Could not resolve 'deb.invalid'
E: Some index files failed to download. They have been ignored, or old ones used instead.
"""


def test_repositories_that_answer_change_nothing(planned):
    found = planned("repos_reachable", {"sh -c folder=": FETCHED})
    assert (found.changes, found.later, found.stop) == ([], [], None)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((100, "Err:1 http://deb.invalid\n", REFUSED), "Could not resolve 'deb.invalid'"),
        ((1, "", "Error: Failed to download metadata for repo 'baseos'\n"), "for repo 'baseos'"),
        ((1, "", "something else\n"), "something else"),
        (127, "neither apt nor dnf"),
    ],
)
def test_the_first_that_does_not_is_reported(planned, said, told):
    found = planned("repos_reachable", {"sh -c folder=": said})
    assert isinstance(found.stop, Failed)
    assert told in found.stop.why
