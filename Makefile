# mrcbed: install, demo, test. Every target works as root, or through sudo from a user's own clone.
#
# Python packages live in .venv, made from Debian's own python3 (another python3 earlier in PATH is not looked at).
# Stamps live inside .venv, so that removing it redoes everything, and each stands for one requirements file, so
# that a change redoes only its part. apt packages are asked for every time: that takes milliseconds and cannot go stale.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
unexport PYTHONDONTWRITEBYTECODE  # set in many containers: each of hundreds of processes of the tests would compile all modules again

SYSTEM_PYTHON ?= /usr/bin/python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
PIP_FLAGS ?=
BYTECODE = $(PY) -m compileall -q agents mrcbed scenarios testbed topologies  # here, so that no user waits for it, whatever PYTHONDONTWRITEBYTECODE says
STAMPS := .venv/.stamps

ENGINE := $(shell find agents testbed/simulated testbed/bench -name '*.py' 2>/dev/null)
BPF := testbed/dataplane/fabric.bpf.o
VERBS := testbed/verbs/libmrcbed-verbs.so
SOURCES := topologies agents testbed scenarios mrcbed tests docs setup.py

# What root made in a user's own clone belongs to that user afterwards: a root-owned .venv or cache would block them later.
OWN := if [ -n "$${SUDO_UID:-}" ] && [ "$$(stat -c %u .)" = "$$SUDO_UID" ]; then \
	find . -path ./build/vm -prune -o -uid 0 -exec chown -h "$$SUDO_UID:$${SUDO_GID:-$$SUDO_UID}" {} +; fi

.PHONY: help help-all install simulated demo test quick vm-test unit browser interpreted agree audit lint docs format verbs rdma-tools emulated emulated-works emulated-quiet mutations fuzz bench soak seeds figures figures-check man dist dist-test clean distclean apt root
.DEFAULT_GOAL := help
.NOTPARALLEL:

help:
	@cat <<-'END'
	make install    apt packages, .venv, compiled engine, eBPF object; leaves .venv/bin/mrcbed  (root or sudo)
	make demo       install, then a cable and a NIC port fail under MRC, RoCE and TCP           (root or sudo)
	make test       install, then every test, emulated ones included, ruff and mypy             (root or sudo)
	make quick      lint, and the tests nearest to your change, in under a minute
	make format     ruff's fixes and formatting
	make docs       the pages as a site in build/site
	make help-all   all the others
	END

help-all: help
	@cat <<-'END'

	without root
	make simulated      install for --world simulated alone: no apt, no eBPF object
	make lint           ruff, import-linter, mypy, and what the pages name
	make man            the man page, from the commands
	make seeds          every shipped scenario over 10 or 100 seeds in virtual time; goes on where it was stopped
	make figures-check  stored figures and tables that are missing, stale or without a stamp; makes nothing
	make verbs          the library for RDMA programs; part of install where gcc and libibverbs-dev are
	make mutations      deliberate bugs in the engine, one by one: is each caught?
	make fuzz           what comes from outside, guided by coverage: SECONDS_EACH=60
	make agree          compiled engine against its source, the same fuzzed inputs: INPUTS=1000000
	make dist           wheel and source archive in dist/;  make dist-test: they install and run in empty environments
	make audit          published vulnerabilities of the pinned Python packages: AUDIT="-s osv" asks another service
	make clean          build output away, .venv and results stay;  make distclean: .venv too

	as root or by sudo
	make figures        every stored figure and table that is missing or stale; WORLD=simulated needs no root; ONLY="16 one-of-many"
	make bench          packets/s of the engine, the codec and the fabric; without root: mrcbed tools bench simulator
	make soak           the long runs
	make browser        Debian's chromium and its driver, and the tests of pages in it
	make rdma-tools     Debian's perftest, ibverbs-utils and python3-pyverbs
	make vm-test        Debian 12 and 13 with their own kernels under qemu: install, doctor, demo, emulated tests in each
	END

root:
	@if [ "$$(id -u)" != 0 ]; then echo "mrcbed: network namespaces need root: sudo make $(firstword $(MAKECMDGOALS))" >&2; exit 2; fi

# --- install ---------------------------------------------------------------------------------------------------

# The engine is compiled while packages come.
install: apt $(STAMPS)/compiler
	@$(CHILD) $(STAMPS)/engine & engine=$$!  # it ends with this shell
	$(MAKE) --no-print-directory $(STAMPS)/packages $(STAMPS)/project $(BPF)
	$(MAKE) --no-print-directory verbs || true  # it says what it lacks; all else works without
	wait $$engine
	$(BYTECODE)
	$(OWN)
	echo "mrcbed is installed: .venv/bin/mrcbed"

# What the simulated world needs: no kernel, no other programs. Says nothing of missing packages of Debian: pip and gcc do where they matter.
simulated: $(STAMPS)/project $(STAMPS)/engine
	@$(BYTECODE)
	$(OWN)
	echo "mrcbed is installed for --world simulated: .venv/bin/mrcbed"

# $(call INSTALL,PACKAGES): those of Debian that are missing. The package lists are fetched only when they cannot serve: never fetched, older
# than a day, or when installing failed.
define INSTALL
	packages="$(1)"
	present=$$(dpkg-query -W -f='$${db:Status-Status} $${Package}\n' $$packages 2>/dev/null | sed -n 's/^installed //p' || true)
	missing=$$(comm -23 <(tr -s ' ' '\n' <<<"$$packages" | sed '/^$$/d' | sort -u) <(sort -u <<<"$$present") | tr '\n' ' ')
	if [ -z "$${missing// /}" ]; then exit 0; fi
	echo "missing Debian packages: $$missing"
	if [ "$$(id -u)" != 0 ]; then echo "mrcbed: installing packages needs root: sudo make $(if $(filter rdma-tools,$(MAKECMDGOALS)),rdma-tools,install)" >&2; exit 2; fi
	if ! command -v apt-get >/dev/null; then echo "mrcbed: no apt-get here: this testbed installs on Debian 12 or 13" >&2; exit 2; fi
	export DEBIAN_FRONTEND=noninteractive
	fetch() { apt-get install -y -q --no-install-recommends $$missing; }
	lists=/var/lib/apt/lists
	if [ -z "$$(find $$lists -maxdepth 1 -name '*Packages*' -print -quit)" ] || [ -z "$$(find $$lists -maxdepth 0 -mtime -1)" ]; then apt-get update -q; fetch
	else fetch || { apt-get update -q; fetch; }; fi
endef

apt:
	@if [ "$(MAKECMDGOALS)" = simulated ]; then exit 0; fi
	$(call INSTALL,$$(sed 's/\#.*//' requirements/apt-packages))

# Programs to try, which nothing here needs.
rdma-tools:
	@$(call INSTALL,perftest ibverbs-utils python3-pyverbs)

.venv/bin/python: | apt
	$(SYSTEM_PYTHON) -c 'import sys; sys.exit("mrcbed: Python 3.11 or later is needed, $(SYSTEM_PYTHON) is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	rm -rf .venv
	$(SYSTEM_PYTHON) -m venv .venv

$(STAMPS)/build-tools: requirements/build.txt | .venv/bin/python
	@mkdir -p $(STAMPS)
	$(PIP) install -q $(PIP_FLAGS) -r requirements/build.txt
	touch $@

# What the engine is built with, as its wheel is (pyproject.toml).
$(STAMPS)/compiler: requirements/run.txt $(STAMPS)/build-tools
	$(PIP) install -q $(PIP_FLAGS) $$(grep -oE '^(numpy|msgspec|mypy_extensions|librt)==[^ ]*' requirements/run.txt)
	touch $@

$(STAMPS)/packages: requirements/run.txt $(STAMPS)/compiler
	$(PIP) install -q $(PIP_FLAGS) --no-build-isolation -r requirements/run.txt
	touch $@

$(STAMPS)/dev: requirements/dev.txt requirements/os-ken.txt requirements/sweep.txt $(STAMPS)/packages
	$(PIP) install -q $(PIP_FLAGS) -r requirements/dev.txt -r requirements/os-ken.txt -r requirements/sweep.txt
	touch $@

$(STAMPS)/docs: requirements/docs.txt $(STAMPS)/packages
	$(PIP) install -q $(PIP_FLAGS) -r requirements/docs.txt
	touch $@

$(STAMPS)/release: requirements/release.txt $(STAMPS)/dev
	$(PIP) install -q $(PIP_FLAGS) -r requirements/release.txt
	touch $@

$(STAMPS)/fuzz: requirements/fuzz.txt $(STAMPS)/dev
	$(PIP) install -q $(PIP_FLAGS) -r requirements/fuzz.txt
	touch $@

# The command only; the engine is compiled by its own rule below, when its sources change.
$(STAMPS)/project: setup.py VERSION $(STAMPS)/packages
	MRCBED_NO_COMPILE=1 MRCBED_WITH_RYU=1 $(PIP) install -q $(PIP_FLAGS) --no-build-isolation --no-deps --config-settings editable_mode=compat -e .
	touch $@

$(STAMPS)/engine: $(ENGINE) setup.py pyproject.toml $(STAMPS)/compiler
	@find agents testbed/simulated testbed/bench -name '*.so' -delete; rm -f *__mypyc*.so
	mkdir -p build
	if ! setpriv --pdeathsig TERM $(PY) setup.py -q build_ext --inplace >build/engine.log 2>&1; then tail -n 20 build/engine.log >&2; exit 1; fi
	find agents testbed/simulated testbed/bench -name '*.so' -exec touch {} +  # a module whose C did not change keeps its old date, and would pass for stale
	grep '^mrcbed:' build/engine.log || true
	touch $@

# The clang command is in testbed/dataplane/build.py and nowhere else.
$(BPF): $(addprefix testbed/dataplane/,fabric.bpf.c build.py layout.py) agents/packets/dscp.py $(addprefix topologies/,clos.py addressing.py) | $(STAMPS)/project
	$(PY) -m testbed.dataplane.build

verbs: $(VERBS)

# The gcc command is in testbed/verbs/build.py and nowhere else.
$(VERBS): $(wildcard testbed/verbs/library/*) testbed/verbs/build.py agents/verbs/layout.py | $(STAMPS)/project
	@$(PY) -m testbed.verbs.build

# --- use -------------------------------------------------------------------------------------------------------

demo: root install
	@status=0; .venv/bin/mrcbed run demo || status=$$?
	$(OWN); exit $$status

bench: root install
	@status=0; .venv/bin/mrcbed tools bench || status=$$?
	$(OWN); exit $$status

# --- check -----------------------------------------------------------------------------------------------------

# Rootless tests share the cores, a file at a time, the dearest first (tests/suite/budgets.py). The second pass is for what setup.py
# compiles, run from source: here whole engines against each other and the simulated network; `make interpreted` takes all of their tests.
# Emulated ones mostly wait for real time: some go on at once, each worker in a sandbox of its own (run directory, bpffs, namespaces); those
# that hold the machine to times, rates or trust (marker `quiet`) come afterwards, four at once: they leave most of both cores idle. Files
# that take longest begin first, or the last one runs alone.
WORKERS ?= $(shell expr $$(nproc) + 2)
ROOTLESS := $(filter-out tests/emulated/ tests/__pycache__/,$(wildcard tests/*/))
BUDGETS ?=
WRITE = $(if $(BUDGETS),--write-budgets)
CONTAINED := $(PY) -m tests.suite.contained
SHARED = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 3 --durations-min 20
WHOLE_ENGINES := $(addprefix tests/agents/,test_virtual.py test_collectives.py mrc/test_delivery.py mrc/test_failures.py \
	roce/test_delivery.py roce/test_recovery.py) $(addprefix tests/simulated/,test_frame.py test_network.py test_queue.py)
ALL_ENGINES := tests/agents tests/fuzz tests/simulated --ignore=tests/agents/kernel
SANDBOXES ?= 4
QUIET ?= 4
IN_SANDBOXES = --dist loadfile --no-loadscope-reorder --tx '$(1)*popen//python=$(PY) -m testbed.machine.sandbox -- $(PY)'
LONGEST := $(patsubst %,tests/emulated/test_%.py,verbs_perftest verbs_programs run_machines pfc cleanup cli_ends failover mapped_run clustermapper programs_run cli_run interrupted cli_up piped_run chaos ovs programs machines_die background)
EMULATED := $(LONGEST) $(filter-out $(LONGEST),$(wildcard tests/emulated/test_*.py))

# Every part runs, whatever became of the others, and the last lines say which to look at. Lint and rootless tests take what emulated ones
# leave of the cores, which mostly wait: their output is in build/ meanwhile. Beside those that measure nothing runs.
CHILD = setpriv --pdeathsig TERM $(MAKE) --no-print-directory
test: root install $(STAMPS)/dev
	@trap 'exit 130' INT  # Ctrl-C: a background job ignores it, and ends with this shell
	status=0; summary=; mkdir -p build
	part() {
		local begun=$$SECONDS verdict=passed
		printf '\n=== make %s ===\n' $$1
		"$${@:2}" || { verdict=FAILED; status=1; }
		summary+=$$(printf '%-16s %s in %d s' $$1 $$verdict $$((SECONDS - begun)))$$'\n'
	}
	begun=$$SECONDS
	$(CHILD) lint >build/lint.log 2>&1 & lint=$$!
	$(CHILD) unit CONTAINED="$(CONTAINED) --yielding" >build/unit.log 2>&1 & unit=$$!
	part emulated-works $(CHILD) emulated-works
	for beside in lint unit; do
		part $$beside wait $${!beside}
		cat build/$$beside.log
	done
	summary+="  both had begun with emulated-works: $$((SECONDS - begun)) s"$$'\n'
	part emulated-quiet $(CHILD) emulated-quiet
	$(OWN)
	printf '\n=== make test ===\n%s' "$$summary"
	exit $$status

# Without install, which may compile and needs root: an engine that is older than its source runs from source by itself.
quick: $(STAMPS)/dev
	@status=0; $(PY) -m tests.suite.quick $(if $(BASE),--base $(BASE)) || status=$$?
	$(OWN); exit $$status

unit: install $(STAMPS)/dev
	@$(PY) -c 'from mrcbed.doctor import require_compiled; require_compiled()'
	status=0
	echo "--- rootless tests, engine compiled"
	$(CONTAINED) -- $(PY) -m pytest $(ROOTLESS) -m "not soak" $(SHARED) $(WRITE) || status=1
	echo "--- whole engines again, interpreted"
	MRCBED_INTERPRETED=1 $(CONTAINED) -- $(PY) -m pytest $(WHOLE_ENGINES) -m "not soak" $(SHARED) || status=1
	exit $$status

# The tests are among those of `make unit`, too, and skip themselves where there is no browser.
browser: root install $(STAMPS)/dev
	@if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium chromium-driver; fi
	status=0; $(PY) -m pytest tests/browser || status=$$?
	$(OWN); exit $$status

interpreted: install $(STAMPS)/dev
	MRCBED_INTERPRETED=1 $(PY) -m pytest $(ALL_ENGINES) -m "not soak" $(SHARED)

emulated: root install $(STAMPS)/dev
	@trap 'exit 130' INT
	status=0; for part in works quiet; do $(CHILD) emulated-$$part || status=1; done; exit $$status

emulated-works: root install $(STAMPS)/dev
	@echo "--- emulated tests, $(SANDBOXES) sandboxes at once"
	$(CONTAINED) -- $(PY) -m pytest $(EMULATED) -m "not soak and not quiet" $(call IN_SANDBOXES,$(SANDBOXES)) $(WRITE)

emulated-quiet: root install $(STAMPS)/dev
	@echo "--- emulated tests that measure, $(QUIET) sandboxes at once"
	$(CONTAINED) -- $(PY) -m pytest $(EMULATED) -m "quiet and not soak" $(call IN_SANDBOXES,$(QUIET)) $(WRITE)

# Other kernels than this machine's. An hour or more; RELEASES, PART and LIMIT (seconds in each guest) choose less. docs/how/testing.md.
RELEASES ?= bookworm trixie
PART ?=
LIMIT ?= 7200
MIRROR ?=
vm-test: root install
	@status=0; missing=$$($(PY) -m tests.vm --lacking)
	if [ -n "$$missing" ]; then DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; fi
	$(PY) -m tests.vm --releases $(RELEASES) $(if $(PART),--parts $(PART)) --limit $(LIMIT) $(if $(MIRROR),--mirror $(MIRROR)) || status=$$?
	exit $$status

mutations: $(STAMPS)/dev
	$(PY) -m tests.mutations

soak: root install $(STAMPS)/dev interpreted
	@status=0; $(PY) -m testbed.machine.sandbox -- $(PY) -m pytest tests/emulated tests/soak -m soak --timeout 0 -rP || status=$$?
	$(OWN); exit $$status

# One directory per version, so that results of two versions never mix. Takes hours; stop it at any time and call it again.
SEEDS_OUT ?= results/seeds-$(shell git describe --always --dirty 2>/dev/null || echo here)
seeds: install
	@status=0; .venv/bin/mrcbed tools bench seeds --out $(SEEDS_OUT) --resume || status=$$?
	$(OWN); exit $$status

# Hours; stop it at any time and call it again. Each is in results/reference, and on its page, as soon as its runs have ended.
WORLD ?=
ONLY ?=
figures: install
	@status=0; .venv/bin/mrcbed tools figures $(ONLY) $(if $(WORLD),--world $(WORLD)) || status=$$?
	$(OWN); exit $$status

figures-check: $(STAMPS)/project
	@.venv/bin/mrcbed tools figures --check $(ONLY)

lint: $(STAMPS)/dev
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check --quiet $(SOURCES)  # make format mends it
	.venv/bin/lint-imports --no-cache
	$(PY) -m docs.tools
	$(PY) -m mypy

docs: $(STAMPS)/docs
	@rm -rf build/site build/doctrees  # what conf.py adds to a page is no change of the page
	$(PY) -m sphinx -W --keep-going -q -b html -c docs -d build/doctrees . build/site
	echo "build/site/index.html"

man: $(STAMPS)/dev
	$(PY) -m docs.tools.man

# The wheel is built from the archive, so a file that the archive lacks cannot be in the wheel. Both in an environment of their own, with the
# versions that pyproject.toml pins.
dist: $(STAMPS)/release
	@rm -rf dist
	$(PY) -m build --outdir dist . >build/dist.log 2>&1 || { tail -n 20 build/dist.log >&2; exit 1; }
	rm -rf *.egg-info  # metadata of an archive, which would pass for that of this installation
	grep '^mrcbed:' build/dist.log | tail -n 1 || true
	ls dist/*

dist-test: dist
	$(PY) -m pytest tests/wheel -m "soak" --timeout 0

format: $(STAMPS)/dev
	$(PY) -m ruff format $(SOURCES)
	$(PY) -m ruff check --fix $(SOURCES)

SECONDS_EACH ?= 60
fuzz: install $(STAMPS)/dev $(STAMPS)/fuzz
	@status=0; $(PY) -m tests.fuzz.run --seconds $(SECONDS_EACH) || status=$$?
	$(OWN); exit $$status

INPUTS ?= 1000000
agree: install $(STAMPS)/dev
	@$(PY) -m tests.forms.agree --inputs $(INPUTS)

# Exactly what is pinned, in all files; pip-audit and what it needs stay out of .venv.
AUDIT ?= -s pypi
audit:
	@mkdir -p build
	[ -x build/audit/bin/pip-audit ] || { python3 -m venv build/audit && build/audit/bin/pip install -q $(PIP_FLAGS) -r requirements/audit.txt; }
	if ! build/audit/bin/pip-audit --strict --progress-spinner off --disable-pip --no-deps $(AUDIT) $(addprefix -r ,$(wildcard requirements/*.txt)) 2>build/audit.log; then
		if grep -q ConnectionError build/audit.log; then echo "make audit: the service of advisories does not answer: it needs a network that reaches it" >&2; exit 2; fi
		tail -n 40 build/audit.log >&2; exit 1
	fi
	tail -n 1 build/audit.log

clean:
	rm -rf build dist *.egg-info *__mypyc*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis $(BPF) $(STAMPS)/engine $(STAMPS)/project
	find topologies agents testbed scenarios mrcbed tests \( -name '*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv
