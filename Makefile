# Strongroom. `make demo` shows it at work, `make test` checks everything; both set the machine up first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-test packages test-packages publish-check docs build build-capi demo demo-network demo-bucket reproducible check test test-engines fmt lint deny soak bench performance install install-capi

export PATH := $(HOME)/.cargo/bin:$(PATH)
PREFIX ?= /usr/local
DESTDIR ?=
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
LOCKED := $(if $(wildcard Cargo.lock),--locked)
# Parts of `make test`, all if empty: make test TEST="rust python". What each runs: scripts/test.sh
TEST ?=
# Measurements of `make bench`, all if empty: make bench BENCH="cost ladder". Which there are: scripts/bench.sh
BENCH ?=
# Kinds of packages, all if empty: make packages PACKAGES="deb python". What each is: scripts/packages.sh
PACKAGES ?=
# Campaigns of `make soak`, all if empty: make soak SOAK="kill fsx". What each does: scripts/soak/*.sh
SOAK ?=

help: ## Show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | awk -F '\t' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: ## Install what building needs, where it is missing
	@scripts/setup.sh

setup-test:
	@scripts/setup.sh test

build: setup ## Build the release binaries: target/release/strongroom, strongroom-bench and strongroom-bucket
	cargo build --release $(LOCKED) -p strongroom-cli

build-capi: setup ## Build the C libraries: target/release/libstrongroom.so, .a and libsqlfs.so
	cargo build --release $(LOCKED) -p strongroom-capi -p strongroom-sqlfs

demo: build ## Make a room, mount it, fill it, compare, and show what an outsider sees
	@scripts/demo.sh $(TARGET_DIR)/release/strongroom

demo-network: build ## Two disks, a metadata server and two clients: share files, refuse, revoke, kill, compare
	@scripts/demo-network.sh $(TARGET_DIR)/release/strongroom

demo-bucket: build ## A room in an S3 bucket: fill, kill the writer, go on elsewhere, follow, compare, show what the store sees
	@scripts/demo-bucket.sh $(TARGET_DIR)/release/strongroom

test: setup-test ## Format and lint checks, every test, licences and advisories (TEST="words links fmt build rust clippy python java deny")
	@scripts/test.sh $(TEST)

test-engines: setup-test build ## Rooms in a bucket of real S3 servers, one of them Garage, with pjdfstest and fsx, and with commits in PostgreSQL and etcd; installs all, needs Go
	@scripts/engines.sh

check: ## The fast checks: ruled-out words, links, formatting
	@scripts/test.sh words links fmt

deny: ## Check licences, bans, sources and advisories of the dependencies
	@scripts/deny.sh

soak: setup-test build ## Long trials: kills, fsx, real programs and more, for hours (SOAK="explorer faults kill replicas fsx programs network bucket standby model fuzz rounds")
	@STRONGROOM_BIN=$(TARGET_DIR)/release/strongroom scripts/soak.sh $(SOAK)

bench: build ## Measure this machine into benches/results (BENCH="cost dd small-files ladder scale stores peers busy programs snapshots confinement bucket storage cipher")
	@scripts/bench.sh $(TARGET_DIR)/release/strongroom $(BENCH)

performance: ## Write docs/performance.md from benches/results; measures nothing
	@cargo run --quiet $(LOCKED) -p strongroom-bench --example performance -- benches/results benches/remarks.md docs/performance.md

docs: setup ## Build the book (target/book) and the API documentation (target/doc), links checked
	@scripts/docs.sh

packages: setup ## Build packages into target/packages (PACKAGES="deb tarball python java")
	@scripts/packages.sh $(PACKAGES)

test-packages: setup ## Install each package of target/packages into a clean root and run it, as root
	@scripts/test-packages.sh $(PACKAGES)

reproducible: setup ## Build the last commit's packages twice, in two directories, and compare the digests
	@scripts/reproducible.sh

publish-check: ## Package every crate as crates.io would get it; publishes nothing
	@scripts/publish-check.sh

install: ## Install stripped binaries, mount helper, manual pages and completions (PREFIX=/usr/local)
	@scripts/install.sh $(TARGET_DIR)/release/strongroom "$(DESTDIR)" "$(PREFIX)"

install-capi: ## Install what build-capi built: header, libraries, pkg-config (PREFIX=/usr/local)
	@scripts/install-capi.sh $(TARGET_DIR)/release "$(DESTDIR)" "$(PREFIX)"
