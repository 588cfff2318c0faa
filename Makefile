# Everything a developer runs. `make help` lists it; CI runs the same targets (.ci/run).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# Set these on the command line: make test PKG=./proxy/... RUN=TestName
PKG := ./...
RUN := .
FUZZTIME := 10s
BENCH :=
BENCH_COUNT := 1
RACE_COUNT := 5
SERIES_DURATION := 1m
SOAK_DURATION := 10m
SWAPTEST :=

# The race detector needs cgo. Go turns cgo off where it finds no C compiler.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

# Tools live outside the tree, so that a fresh clone finds them built. Their versions are in tools/go.mod.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mcp-sidecar
GOLANGCI_VERSION := $(shell sed -n 's,^\tgithub.com/golangci/golangci-lint/v2 \(v[^ ]*\).*,\1,p' tools/go.mod)
GOLANGCI := $(CACHE)/bin/golangci-lint-$(GOLANGCI_VERSION)-$(shell go env GOVERSION)

##@ Build and test

.PHONY: build
build: ## Build bin/mcp-sidecar, statically linked
	CGO_ENABLED=0 go build -trimpath -o bin/mcp-sidecar ./cmd/mcp-sidecar

.PHONY: test
test: race-notice ## Run all tests with the race detector (needs only Go; PKG and RUN narrow it)
	go test $(RACE) -shuffle=on -run '$(RUN)' $(PKG)

.PHONY: test-short
test-short: ## Run the quick tests, without the race detector
	go test -short -shuffle=on -run '$(RUN)' $(PKG)

.PHONY: race
race: race-notice ## Run the tests RACE_COUNT times over, to find rare races
	go test $(RACE) -shuffle=on -count=$(RACE_COUNT) -run '$(RUN)' $(PKG)

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each (10s)
	@grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | while IFS=: read -r file func; do \
		name=$${func#func }; dir=$$(dirname "$$file"); \
		echo "fuzzing $$dir $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null; \
	done

.PHONY: bench
bench: ## Measure the sidecar next to ReverseProxy and nginx, its swaps and starts (BENCH=-short for a smoke, BENCH=-h for more)
	go run ./e2e/bench $(BENCH)

.PHONY: microbench
microbench: ## Run the benchmarks of the packages BENCH_COUNT times (compare two runs with benchstat)
	go test -run '^$$' -bench . -benchmem -count=$(BENCH_COUNT) $(PKG)

.PHONY: bench-100k
bench-100k: ## Measure the registry's load, swap and upkeep with 100,000 conversations, in a file and on Redis (redis-server)
	go test -run '^$$' -bench 100k -benchtime 3x -benchmem -count=$(BENCH_COUNT) ./conversation ./conversation/redisstore

.PHONY: cover
cover: ## Measure the test coverage; the profile is cover.out
	go test -short -coverpkg=./... -coverprofile=cover.out $(PKG)
	go tool cover -func=cover.out | tail -n 1

.PHONY: demo
demo: ## Show a redeployment from start to end in this terminal
	go run ./cmd/mcp-sidecar demo

##@ Test with other programs (each tells what it needs and lacks)

.PHONY: conformance
conformance: ## Compare the public MCP conformance suite through the sidecar with the server itself (npm)
	go test -count=1 -v -tags conformance ./e2e/conformance

.PHONY: e2e-gosdk
e2e-gosdk: race-notice ## Replace the backend under clients of the official Go SDK
	go -C e2e/gosdk test $(RACE) -count=1 ./...

.PHONY: e2e-sdks
e2e-sdks: ## Swap backends of four SDKs under clients of three (npm, Python)
	go test -count=1 -v -timeout 20m -tags sdks ./e2e/sdks

.PHONY: e2e-openhands
e2e-openhands: ## Replace the backends of conversations at real OpenHands agent servers (Python 3.12)
	go test -count=1 -v -timeout 30m -parallel 4 -tags openhands ./e2e/openhands

.PHONY: chaos
chaos: ## Let everything fail at once for CHAOS_DURATION (3m) and compare the books
	go test -count=1 -timeout 60m -tags chaos ./e2e/chaos

.PHONY: soak
soak: ## Let a sidecar work for SOAK_DURATION (10m), with swaps, and fail when anything grows
	SOAK_DURATION=$(SOAK_DURATION) go test -count=1 -v -timeout 24h -tags soak ./e2e/soak

.PHONY: e2e-page
e2e-page: ## Look at the status page in a real browser (chromium, npm); pictures go to dist/statuspage
	go -C e2e/statuspage test -count=1 -timeout 10m ./...

.PHONY: e2e-replicas
e2e-replicas: ## Replace backends of three sidecars that share a registry (redis-server, haproxy)
	go test -count=1 -v -timeout 10m -tags replicas ./e2e/replicas

.PHONY: e2e-alerts
e2e-alerts: ## Page for what is wrong and stay silent at a rollout (prometheus, alertmanager)
	go test -count=1 -timeout 10m -tags alerts ./e2e/alerts

.PHONY: swaptest
swaptest: build ## Put the sidecar through the replacements that any MCP proxy can be put through (SWAPTEST=--help)
	go run ./e2e/swaptest --parallel 4 $(SWAPTEST) -- bin/mcp-sidecar run --listen {listen} --upstream http://{backend}/mcp \
		--ops-listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --state {dir}/state.db

.PHONY: comparison
comparison: ## Put other proxies through them, too; UPDATE_DOCS=1 writes docs/comparison.md (npm, Python, nginx, haproxy)
	go test -count=1 -v -timeout 90m -tags comparison ./e2e/swaptest/rivals

.PHONY: e2e-series
e2e-series: ## Count the metrics' series over SERIES_DURATION (1m) of swaps and 10,000 hostile names
	SERIES_DURATION=$(SERIES_DURATION) go test -count=1 -timeout 20m -v -run '^TestSeries$$' ./e2e

.PHONY: chart-test
chart-test: ## Render the Helm charts and check what comes out (builds helm)
	go -C tools/charttest test -count=1 -shuffle=on .

.PHONY: rules-test
rules-test: ## Check the alerts and the dashboard against promtool and the metrics (promtool)
	go -C tools/charttest test -count=1 -shuffle=on ./rules

##@ Check

.PHONY: lint
lint: $(GOLANGCI) ## Run the linters
	$(GOLANGCI) run

.PHONY: fmt
fmt: $(GOLANGCI) ## Format all Go files
	$(GOLANGCI) fmt

.PHONY: tidy-check
tidy-check: ## Check that go.mod and go.sum are tidy and that the modules are what go.sum says
	go mod tidy -diff
	for m in tools tools/charttest e2e/gosdk e2e/sdks/gosdk e2e/statuspage; do go -C $$m mod tidy -diff; done
	go mod verify

# That the database can't be reached is the network's fault, and is said; anything else fails.
.PHONY: vuln
vuln: ## Look for known vulnerabilities in the code that is used (asks vuln.go.dev)
	@if out=$$(go -C tools tool govulncheck -C .. ./... 2>&1); then echo "$$out"; \
	elif [[ $$out == *"fetching vulnerabilities"* ]]; then \
		echo "$$out"; echo "NOT CHECKED: the database of vulnerabilities can't be reached. Run make vuln where it can." >&2; \
	else echo "$$out"; exit 1; fi

.PHONY: docs
docs: ## Write what is generated of the documents: the table in docs/metrics.md
	UPDATE_DOCS=1 go test -count=1 -run TestMetricsAreDocumented ./cmd/mcp-sidecar

.PHONY: docs-check
docs-check: ## Check the documents' links, the tests that they name, and what they say of flags, keys, commands, metrics and alerts
	go test -count=1 -run 'AreDocumented$$' ./cmd/mcp-sidecar
	go -C tools/charttest test -count=1 -run TestEveryAlertHasARunbook ./rules
	go -C tools test ./docscheck
	go -C tools run ./docscheck ..

##@ Release

.PHONY: release
release: ## Make archives, checksums and bills of materials for all platforms in dist/
	rm -rf dist
	go -C tools run ./release -C .. -o ../dist

.PHONY: release-check
release-check: ## Make one platform's release twice, from two clones, and compare
	go -C tools test ./release
	go -C tools run ./release -C .. -check $$(go env GOOS)/$$(go env GOARCH)

##@ All of it

.PHONY: ci
ci: ## Run all that CI runs
	CI=true bash .ci/run

##@ Other

.PHONY: clean
clean: ## Remove what the other targets built
	rm -rf bin dist cover.out

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: race-notice
race-notice:
	@$(if $(RACE),:,echo "No C compiler was found: testing without the race detector. Install gcc or clang to have it." >&2)

# Versions are in the file's name: a clone's timestamps say nothing about it.
$(GOLANGCI):
	@mkdir -p $(@D)
	@echo "building golangci-lint $(GOLANGCI_VERSION), once" >&2
	CGO_ENABLED=0 go -C tools build -trimpath -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
