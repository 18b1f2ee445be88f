# Gregor's tasks; `make` lists them. They need Go and nothing else: what needs more says so and is left out.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
# Tools and their caches; nothing else is written outside of bin/ and the directories that Go itself uses.
CACHE ?= $(CURDIR)/.cache
# How long each fuzz target runs, which ones run 30 s whatever that says, and how many at the same time.
FUZZTIME ?= 30s
FUZZLONG ?=
FUZZJOBS ?= 2
# Arguments for `make run`: make run ARGS="server.properties --override num.partitions=3"
ARGS ?=
# Arguments for `make bench`: make bench BENCH_ARGS="-full -only produce"; go run ./bench -h lists them.
BENCH_ARGS ?=

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GOLANGCI_VERSION := v2.15.0
GOLANGCI := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
SOURCES := go.mod go.sum $(shell find broker cmd groupcoord internal kraft protocol storage txncoord \( -name '*.go' -o -name '*.tsv' \) ! -name '*_test.go' 2>/dev/null)

.PHONY: help build run test unit race invariants-off vet fuzz lint bench bench-once compat tools clean

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

build: bin/gregor ## build bin/gregor, one static binary

bin/gregor: $(SOURCES)
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.stamped=$(VERSION)' -o $@ ./cmd/gregor

run: build ## run a broker on localhost:9092, with its data in ./gregor-data
	@exec bin/gregor start $(ARGS)

test: vet unit compat ## run all tests; those whose tools are missing are named and left out
	@echo 'All tests that can run here have passed.'

vet:
	$(GO) vet ./...
	$(GO) vet -tags invariants ./...
	cd compat-tests && $(GO) vet ./...

# Twice: with the assertions of -tags invariants and the race detector, and as the binary is built.
unit: race invariants-off ## run the unit tests

race: ## run the unit tests with the race detector and all assertions
	@if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null; then \
		echo '$(GO) test -race -tags invariants ./...'; \
		$(GO) test -race -tags invariants -timeout 15m ./...; \
	else \
		echo 'SKIPPED: the race detector needs a C compiler (apt-get install gcc libc6-dev); the assertions run without it.'; \
		$(GO) test -tags invariants -timeout 15m ./...; \
	fi

invariants-off:
	$(GO) test -timeout 15m ./...

fuzz: ## run every fuzz target for FUZZTIME (30s), FUZZJOBS (2) at a time
	@grep -roE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' broker groupcoord internal kraft protocol storage txncoord \
		| sed -E 's|^(.*)/[^/]*_test\.go:func (.*)$$|./\1 \2|' | LC_ALL=C sort \
		| FUZZTIME=$(FUZZTIME) FUZZLONG='$(FUZZLONG)' xargs -P $(FUZZJOBS) -L 1 .ci/fuzz

lint: $(GOLANGCI) ## run golangci-lint at its pinned version
	GOLANGCI_LINT_CACHE='$(CACHE)/golangci' $(GOLANGCI) run ./...
	cd compat-tests && GOLANGCI_LINT_CACHE='$(CACHE)/golangci' $(GOLANGCI) run ./...

$(GOLANGCI):
	GOBIN='$(dir $@)' GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

bench: tools ## measure Gregor side by side with Apache Kafka
	cd compat-tests && $(GO) run ./bench $(BENCH_ARGS)

bench-once:
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

# Never from Go's cache of results: it does not see the binary that these tests build and run.
compat: tools ## run the binary against other people's clients and a real Kafka
	cd compat-tests && $(GO) test -count=1 -timeout 30m ./...

# In CI a missing tool fails the tests that need it; elsewhere they are left out, and this says so.
tools:
	@for tool in kcat:kcat java:openjdk-17-jdk-headless javac:openjdk-17-jdk-headless mvn:maven strace:strace python3:python3-venv node:nodejs npm:npm losetup:mount mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs; do \
		command -v "$${tool%%:*}" >/dev/null || echo "SKIPPED: the tests that need $${tool%%:*} (apt-get install $${tool#*:})"; \
	done

clean: ## remove what was built and cached here
	rm -rf bin .cache
