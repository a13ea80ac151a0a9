import pytest

from gpuops.lab.csh import complaint


@pytest.mark.parametrize(
    "command",
    [
        "hostname",
        "sh -c 'for x in 1 2; do echo $x; done'",
        'echo "a b" | wc -l',
        "sh -c 'a=1; echo $(($a+1)) 2>&1'",
        "ls > /dev/null",
    ],
)
def test_what_both_shells_read_alike_is_accepted(command):
    assert complaint(command) is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("A=1 hostname", "A=1: Command not found."),
        ("ls 2>/dev/null", "Ambiguous output redirect."),
        ("echo $(hostname)", "Illegal variable name."),
        ("sh -c 'one\ntwo'", "Unmatched '''."),
        ("sh -c 'test ! -e x && echo hi!there'", "Event not found."),
        ("export A=1", "export: Command not found."),
        ("for x in 1; do echo; done", "do: Command not found."),
    ],
)
def test_what_only_sh_reads_is_refused(command, words):
    assert complaint(command) == words
