"""What ``--check`` says of steps that build on one another is what the run does, as root on this very machine.

Only systemd and apt are stand-ins, which keep their state in files; /etc is a copy.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = "from gpuops.cli import main; main()"
SYSTEMCTL = """\
#!/bin/sh
verb=$1; for unit; do :; done
made=$STATE/units/$unit
case $verb in
  show)
    load=not-found; [ -e "/etc/systemd/system/$unit" ] || [ -e "$STATE/brought/$unit" ] && load=loaded
    active=inactive; [ -e "$made.active" ] && active=active
    file=static; [ -e "$made.enabled" ] && file=enabled
    reload=no; [ -n "$(find /etc/systemd/system -newer "$STATE/reloaded" -type f)" ] && reload=yes
    for key in LoadState=$load ActiveState=$active SubState=dead UnitFileState=$file NeedDaemonReload=$reload \\
      Result=success
    do case ,${2#--property=}, in *,${key%%=*},*) echo "$key" ;; esac; done ;;
  start|restart) touch "$made.active" ;;
  stop) rm -f "$made.active" ;;
  enable) touch "$made.enabled" ;;
  disable) rm -f "$made.enabled" ;;
  daemon-reload) sleep 0.02; touch "$STATE/reloaded" ;;
  *) exit 1 ;;
esac
"""
APT = """\
#!/bin/sh
for name; do :; done
case " $* " in
  *" -s "*) echo "0 upgraded, 1 newly installed, 0 to remove"; echo "Inst $name (1.0 lab [all])" ;;
  *" install "*) touch "$STATE/packages/$name" "$STATE/brought/$name.service"
    mkdir -p "/etc/$name"; echo "port=80" >"/etc/$name/$name.conf"; touch "/etc/$name/default"
    grep -q "^$name:" /etc/passwd || echo "$name:x:990:0::/var/$name:/bin/sh" >>/etc/passwd ;;
esac
"""
DPKG_QUERY = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done; shift
for name; do [ -e "$STATE/packages/$name" ] && printf '%s\\t1.0\\tii \\n' "$name"; done
"""
TOOLS = {"systemctl": SYSTEMCTL, "apt-get": APT, "dpkg-query": DPKG_QUERY, "dpkg": "#!/bin/sh\n"}

FILES = """\
- file: {path: /srv/x.conf, content: "a=1\\n"}
- line: {path: /srv/x.conf, line: b=2, match: ^b=}
- line: {path: /srv/x.conf, line: a=1}
- block: {path: /srv/x.conf, content: c=3}
- file: {path: /srv/x.conf, content: "a=1\\nb=2\\n# BEGIN gpuops\\nc=3\\n# END gpuops\\n"}
- command: {words: [sh, -c, "echo d=4 >>/srv/x.conf"], unless: [grep, -q, d=4, /srv/x.conf], become: always}
- line: {path: /srv/x.conf, line: e=5}
"""
FOLDERS = """\
- file: {path: /srv/d/e/f, content: f}
- directory: {path: /srv/d/e}
- directory: {path: /srv/d, mode: "0700"}
- attributes: {path: /srv/d, mode: "0700"}
- attributes: {path: /srv/d/e/f, mode: "0600"}
- file: {path: /srv/d/e/f, content: f, mode: "0600"}
- copy: {src: binary, path: /srv/d/binary}
- copy: {src: binary, path: /srv/d/binary, mode: "0600"}
"""
ABSENT = """\
- file: {path: /srv/old, state: absent}
- file: {path: /srv/old, state: absent}
- command: {words: [touch, /srv/was-there], removes: /srv/old}
- line: {path: /srv/old, line: new}
- directory: {path: /srv/empty, state: absent}
- file: {path: /srv/empty, content: now a file}
"""
LINKS = """\
- file: {path: /srv/target, content: t}
- link: {path: /srv/link, target: /srv/target}
- link: {path: /srv/link, target: /srv/target}
- link: {path: /srv/link, target: /srv/d}
- link: {path: /srv/link, state: absent}
- file: {path: /srv/link, content: a file}
"""
COMMANDS = """\
- command: {words: [sh, -c, "date >/srv/born"], creates: /srv/born}
- command: {words: [sh, -c, "date >/srv/born"], creates: /srv/born}
- wait_for: {path: /srv/born}
- file: {path: /srv/born, content: replaced}
- script: {src: setup.sh, creates: /srv/done}
- command: {words: [sh, -c, "rm /srv/done"], removes: /srv/done, become: always}
- command: {words: [touch, /srv/made], creates: /srv/made}
- file: {path: /srv/made, state: absent}
"""
USERS = """\
- group: {name: lab}
- group: {name: lab}
- user: {name: labrat, group: lab, home: /etc/labrat}
- directory: {path: /srv/own, owner: labrat, group: lab}
- file: {path: /srv/own/file, content: mine, owner: labrat, group: lab}
- attributes: {path: /srv/own/file, owner: labrat, group: root}
- authorized_key: {user: labrat, key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHpk me}
- user: {name: gone, state: absent}
- user: {name: gone, state: absent}
"""
UNITS = """\
- unit: {name: agent, content: "[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n"}
- service: {name: agent, state: started, enabled: true}
- service: {name: agent, state: started, enabled: true}
- service: {name: agent, state: stopped}
- unit: {name: agent, drop_in: more, content: "[Service]\\nNice=5\\n"}
- service: {name: agent, state: started}
- file: {path: /etc/systemd/system/agent.service.d/last.conf, content: "[Service]\\nNice=6\\n"}
- service: {name: agent, state: started}
"""
PACKAGES = """\
- package: {names: [agentd], detach: false}
- package: {names: [agentd], detach: false}
- service: {name: agentd, state: started, enabled: true}
- service: {name: agentd, state: stopped}
- line: {path: /etc/agentd/agentd.conf, line: port=81, match: ^port=}
- file: {path: /etc/agentd/default, state: absent}
- directory: {path: /etc/agentd, mode: "0700"}
- user: {name: agentd, shell: /bin/bash}
- command: {words: [touch, /srv/with], unless: [test, -e, /srv/with]}
"""
RESULTS = """\
- file: {path: /srv/a, content: a}
  register: a
- file: {path: /srv/b, content: b}
  when: a.changed
- stat: {path: /srv/a, reads: text}
  register: seen
- file: {path: /srv/c, content: "{{ seen.value.content }}"}
- file: {path: /srv/d, content: d}
  when: seen.value.content == "a"
- command: {words: [echo, hi], always: true}
  register: said
- file: {path: /srv/e, content: "{{ said.value.out }}"}
- file: {path: /srv/f, content: f}
  when: said.value.out == "hi\\n"
- file: {path: /srv/g, content: g}
  when: not a.changed
"""
LOOPS = """\
- line: {path: /srv/list, line: "{{ item }}"}
  loop: [one, two, one]
- line: {path: /srv/list, line: "{{ item }}"}
  loop: [two, one]
- sysctl: {key: kernel.ostype, value: Linux, file: /srv/sysctl.conf}
- sysctl: {key: kernel.ostype, value: Linux, file: /srv/sysctl.conf}
- line: {path: /srv/sysctl.conf, line: kernel.ostype = Linux}
- block:
    - json: {path: /srv/x.json, values: {a: {b: 1}}}
    - json: {path: /srv/x.json, values: {a: {c: 2}}}
    - json: {path: /srv/x.json, values: {a: {b: 1, c: 2}}}
- template: {src: x.j2, path: /srv/x}
- file: {path: /srv/x, content: "x is 1\\n"}
"""
PLAYBOOKS = {
    name.lower(): globals()[name]
    for name in (
        "FILES", "FOLDERS", "ABSENT", "LINKS", "COMMANDS", "USERS", "UNITS", "PACKAGES", "RESULTS", "LOOPS",
    )
}  # fmt: skip


@pytest.fixture
def provision(tmp_path):
    """Runs a playbook's steps with some options; returns the status of each step by its number."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it locks and changes this machine")
    possible = subprocess.run(["unshare", "--mount", "mount", "--bind", tmp_path, "/run"], check=False)
    if possible.returncode != 0:
        pytest.skip("needs mount namespaces, which this container may not make")
    out, state = tmp_path / "out", tmp_path / "state"
    for path in (tmp_path / "run", out, state, state / "units", state / "brought", state / "packages", out / "empty"):
        path.mkdir()
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True)
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True, exist_ok=True)
    with (tmp_path / "etc" / "passwd").open("a") as passwd:
        passwd.write("gone:x:991:0::/:/bin/sh\n")
    (out / "old").write_text("old")
    (tmp_path / "setup.sh").write_text(f"touch {out}/done\n")
    (tmp_path / "binary").write_bytes(b"\0\1")
    (tmp_path / "x.j2").write_text("x is {{ one }}\n")
    (tmp_path / "gpuops.yml").write_text("inventory: localhost\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (state / "reloaded").touch()
    mounts = 'mount --bind "$0/run" /run && mount --bind "$0/etc" /etc && exec "$@"'
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "STATE": str(state)}

    def provision(steps, *words):
        indented = "".join(f"    {line}\n" for line in steps.splitlines())
        text = f"- hosts: all\n  vars: {{one: 1}}\n  tasks:\n{indented}".replace("/srv", str(out))
        (tmp_path / "p.yml").write_text(text)
        line = ["unshare", "--mount", "sh", "-c", mounts, tmp_path, sys.executable, "-c", PROGRAM]
        done = subprocess.run(
            [*map(str, line), "provision", "p.yml", "--force", "--json", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode in (0, 1), done
        results = json.loads(done.stdout)["results"]
        return {number: (result["name"], result["status"], result["why"]) for number, result in enumerate(results)}

    return provision


PENDING = ("would_change", "later")


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_check_mode_says_of_each_step_what_the_run_does(provision, name):
    steps = PLAYBOOKS[name]
    checked, applied = provision(steps, "--check"), provision(steps)
    told = "\n".join(f"{number}: {checked[number][1:]} {applied[number][1:]}" for number in applied)
    assert [*checked] == [*applied], told
    assert not [line for line in applied.values() if line[1] == "failed"], told
    pending = [number for number, line in checked.items() if line[1] in PENDING]
    changed = [number for number, line in applied.items() if line[1] == "changed"]
    assert pending == changed, told
    assert all("depends on step 1." in line[2] for line in checked.values() if line[1] == "later"), told
