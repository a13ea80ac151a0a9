import base64
import copy
import getpass
import json
import pickle
import shlex
import threading

import pytest

from gpuops import secret
from gpuops.secret import MASK, Secret, redact

WORD = "correct 'horse\" battery\\ staple"


@pytest.fixture
def password(monkeypatch):
    monkeypatch.setattr(secret, "_masked", frozenset())
    return Secret(WORD)


def test_only_reveal_shows_it(password):
    assert password.reveal() == WORD
    for shown in (
        str(password),
        repr(password),
        f"{password}",
        f"{password!r}",
        f"{password}",
        repr([password]),
    ):
        assert "horse" not in shown
        assert MASK in shown


@pytest.mark.parametrize("write", [pickle.dumps, copy.deepcopy, copy.copy])
def test_it_is_written_nowhere(password, write):
    with pytest.raises(TypeError, match="cannot pickle"):
        write(password)


def test_json_refuses_it(password):
    with pytest.raises(TypeError):
        json.dumps({"password": password})


@pytest.mark.parametrize(
    "hide",
    [
        str,
        shlex.quote,
        json.dumps,
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: f"a{text}b{text}",
    ],
)
def test_a_text_is_blotted_in_every_form(password, hide):
    shown = redact(f"before {hide(WORD)} after")
    assert "horse" not in shown
    assert base64.b64encode(WORD.encode()).decode() not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_a_secret_that_begins_another_does_not_spare_its_rest(monkeypatch):
    monkeypatch.setattr(secret, "_masked", frozenset())
    Secret("open")
    Secret("open sesame")
    assert "sesame" not in redact("say open sesame now")


def test_the_empty_secret_blots_nothing(monkeypatch):
    monkeypatch.setattr(secret, "_masked", frozenset())
    Secret("")
    assert redact("a text") == "a text"


def test_secrets_that_appear_meanwhile_do_not_disturb_another_thread(password):
    made, errors = threading.Event(), []

    def look():
        while not made.is_set():
            try:
                assert "horse" not in redact(f"say {WORD} now")
            except Exception as error:  # noqa: BLE001 - what goes wrong in a thread is told by the test
                errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    makers = [threading.Thread(target=lambda n=n: [Secret(f"secret {n} {i}") for i in range(40)]) for n in range(3)]
    for thread in (*threads, *makers):
        thread.start()
    for thread in makers:
        thread.join()
    made.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert not [n for n in range(3) for i in range(40) if f"secret {n} {i}" in redact(f"<secret {n} {i}>")]


def test_secrets_are_equal_by_their_text(password):
    assert password == Secret(WORD)
    assert hash(password) == hash(Secret(WORD))
    assert password != Secret("other")
    assert password != WORD


def test_what_is_typed_becomes_a_secret(monkeypatch):
    monkeypatch.setattr(getpass, "getpass", lambda prompt: f"typed at {prompt}")
    assert secret.ask("sudo: ").reveal() == "typed at sudo: "
