# gpuops. Every target brings its own set-up: Python 3.10 or newer, with venv, is all that must be there.

SHELL := /bin/bash
BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE    # the tests start gpuops a thousand times, and each start would compile all of it
PYTHON = $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 \
	&& { echo $$python; break; }; done)
SYSTEM_PACKAGES := openssh-server openssh-client sudo tcsh fish pciutils kmod iproute2 pdsh openmpi-bin mpich \
	munge slurm-client slurm-wlm-basic-plugins slurmctld slurmd iperf3 gcc libc6-dev \
	systemd-container debootstrap apt-utils gnupg vagrant nftables ipmitool openipmi
LIGHTNING := lightning==2.6.6 pytorch-lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 \
	jsonargparse==4.53.0 typeshed-client==2.15.0 importlib-resources==7.1.0 docstring-parser==0.18.0
A_THIRD := $(if $(GPUOPS_CI),GPUOPS_A_THIRD=$(shell date +%-j))    # CI has an hour; three days see every file
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test real promises fuzz kills soak format lint types check wheel sbom audit docs bench system ground clean

help:      ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: .venv/lab.stamp      ## a lab of 8 H100 nodes with faults: bring it up, validate and measure it; it stays 15 minutes
	$(BIN)/gpuops lab demo

test: .venv/test.stamp system      ## the quick tests, which need no root; many of them wait, so three run side by side on two cores
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder tests/lab tests/unit tests/attacks tests/fuzz $(wildcard tests/test_*.py)

real: .venv/test.stamp ground      ## tests with real servers, networks and machines, most of which want root: twenty minutes
	$(BIN)/pytest tests/real/collective
	$(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder tests/real --ignore tests/real/collective
	$(BIN)/pytest -m root tests/lab tests/unit
	$(BIN)/pytest -n 2 --dist loadfile -m long tests/unit
	$(A_THIRD) $(BIN)/pytest -n 2 --dist loadfile -m 'sampled and not long' tests/unit
	$(BIN)/pytest -n 2 --dist loadfile -m 'long or sampled' tests/lab tests/attacks tests/fuzz
	$(BIN)/python tests/mutations/remove_guards.py --sample 4 --seed $$(date +%j)
	$(BIN)/python tests/kills/kills.py provision facts state drain --no-lines --shots 8 --seed $$(date +%j)

promises: .venv/test.stamp ground      ## remove each guard of docs/promises.md in a copy: its test must fail; half an hour
	$(BIN)/python tests/mutations/remove_guards.py

fuzz: .venv/test.stamp      ## odd input for every reader of foreign bytes: make fuzz MINUTES=60; what breaks one is kept for the tests
	$(BIN)/python tests/fuzz/fuzz.py --minutes $(or $(MINUTES),60)

kills: .venv/test.stamp      ## kill -9 of client, agent and connection at journal lines and random instants: make kills SHOTS=200 SEED=1
	$(BIN)/python tests/kills/kills.py --shots $(or $(SHOTS),200) --seed $(or $(SEED),1)

soak: .venv/test.stamp      ## repeat the common commands and watch what grows: make soak MINUTES=60
	$(BIN)/python tests/kills/soak.py --minutes $(or $(MINUTES),60)

check: lint types test real wheel      ## everything that must hold before a change goes in

lint: .venv/test.stamp      ## format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/test.stamp      ## mypy, strict
	$(BIN)/mypy

wheel: .venv/test.stamp      ## dist/*.whl and the sdist
	rm -rf dist
	$(BIN)/hatchling build

sbom: .venv/sbom/stamp .venv/release.stamp      ## dist/gpuops.cdx.json: what an installation with all options consists of
	mkdir -p dist
	$(BIN)/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --of JSON -o dist/gpuops.cdx.json .venv/sbom/bin/python

audit: .venv/sbom/stamp .venv/release.stamp      ## known vulnerabilities of what it depends on; exit 3 if no database answers
	$(BIN)/python release/audit.py $(BIN)/pip-audit .venv/sbom

.venv/sbom/stamp: pyproject.toml .venv/release.stamp
	$(PYTHON) -m venv .venv/sbom
	.venv/sbom/bin/python -m pip install --quiet --disable-pip-version-check '.[redfish,testinfra]'
	.venv/sbom/bin/python -m pip uninstall --quiet --yes pip
	@touch $@

format: .venv/test.stamp      ## let ruff format the code
	$(BIN)/ruff format .

docs: .venv/test.stamp      ## write what the pages in docs/ take from the code
	$(BIN)/python docs/generate.py

bench: .venv/test.stamp      ## the measurements, side by side with peers, and 4,000 cases of isolation; takes hours, wants an idle machine
	$(BIN)/python bench/judging.py
	$(BIN)/python bench/agent.py
	$(BIN)/python bench/render.py
	$(BIN)/python bench/fanout.py
	$(BIN)/python bench/sweep.py
	$(BIN)/python bench/store.py
	@if [ "$$(id -u)" = 0 ] && command -v iperf3 >/dev/null; then set -x; $(BIN)/python bench/ring.py; \
	else echo "left out: bench/ring.py, which wants root and iperf3"; fi
	$(BIN)/python bench/isolation.py
	$(BIN)/python bench/accusations.py
	mkdir -p .bench
	$(BIN)/python bench/calibration.py .bench/calibration.jsonl
	$(BIN)/python bench/isolation_table.py .bench/isolation.jsonl

clean:      ## remove all that these targets made
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# With GPUOPS_CI=1 nothing may be skipped, so what the tests can use is installed first; that takes root and apt.
# Some libraries pin other versions of what gpuops and its tests need, so they have environments of their own.
system:
	@if [ "$$GPUOPS_CI" = 1 ]; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends $(SYSTEM_PACKAGES) >/dev/null; \
	fi

ground: system
	@if [ "$$GPUOPS_CI" = 1 ]; then \
		$(PIP) --editable '.[launch]' \
		&& $(BIN)/python -m venv .venv/sagemaker \
		&& .venv/sagemaker/bin/python -m pip install --quiet --disable-pip-version-check sagemaker==2.257.7 \
		&& $(BIN)/python -m venv .venv/skypilot \
		&& .venv/skypilot/bin/python -m pip install --quiet --disable-pip-version-check skypilot==0.14.1 \
		&& $(BIN)/python -m venv .venv/dstack \
		&& .venv/dstack/bin/python -m pip install --quiet --disable-pip-version-check dstack==0.22.5 \
		&& $(PIP) --target .venv/lightning --upgrade --no-deps $(LIGHTNING); \
	fi

.venv/lab.stamp .venv/test.stamp .venv/release.stamp: .venv/%.stamp: pyproject.toml
	@test -n "$(PYTHON)" || { echo "gpuops needs Python 3.10 or newer with venv, and none is on PATH (Debian, Ubuntu: apt install python3 python3-venv)"; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(PIP) --editable '.[$*]'
	@touch $@
