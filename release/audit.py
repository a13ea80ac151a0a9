"""Look up what a gpuops installation depends on in the databases of known vulnerabilities: ``audit.py PIP_AUDIT VENV``.

Exit 0: nothing is known; 1: something is. 3: it could not be looked up, which is neither.
"""

import json
import pathlib
import subprocess
import sys

AUDIT = ("--format", "json", "--progress-spinner", "off")


def main(program: str, environment: str) -> int:
    """Run pip-audit with PyPI's database, then with OSV's; the first that answers decides."""
    (site,) = pathlib.Path(environment).glob("lib/python*/site-packages")
    for service in ("pypi", "osv"):
        words = [program, *AUDIT, "--path", str(site), "--vulnerability-service", service]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        found = report(done.stdout)
        if found is not None:
            sys.stdout.write("\n".join([*found, f"{len(found)} known vulnerabilities ({service})", ""]))
            return min(len(found), 1)
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]
        sys.stderr.write(f"{service}: {last if done.returncode else 'some packages were not looked up'}\n")
    sys.stderr.write("unverified: no database of vulnerabilities answered; run this where one does, before a release\n")
    return 3


def report(text: str) -> list[str] | None:
    """Return one line per vulnerability; None unless every package but gpuops itself was looked up."""
    try:
        packages = json.loads(text)["dependencies"]
        skipped = [each["name"] for each in packages if "skip_reason" in each and each["name"] != "gpuops"]
        if not packages or skipped:
            return None
        return [f"{each['name']} {each['version']}: {one['id']}" for each in packages for one in each.get("vulns", ())]
    except (ValueError, LookupError, TypeError):
        return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
