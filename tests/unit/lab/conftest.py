import pytest
from tests.recorded import OUTPUTS


@pytest.fixture(params=OUTPUTS, ids=lambda folder: folder.parent.name)
def capture(request):
    """What a real tool printed: the specimen's name, and another where the larger collection calls it so."""

    def read(name, elsewhere):
        path = request.param / (name if request.param == OUTPUTS[0] else elsewhere)
        return path.read_text(encoding="utf-8")

    return read
