# Rowmill needs Go, make and a C compiler (for the race detector); everything
# else is optional. `make help` lists the targets.

GO      ?= go
VERSION ?= $(shell .ci/version)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
BUILT   ?= $(shell git log -1 --format=%cI 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.built=$(BUILT)
FUZZ    ?= 10s# time per fuzz target, as in `make fuzz FUZZ=1m`
ROUNDS  ?= 5# rounds of each benchmark
JOBS    ?= 10000# jobs of `make soak/jobs`
SOAK    ?= 1h# time of the random faults of `make soak`
SERVERS ?= llama.cpp vllm sglang ollama transformers infinity llama-cpp-python# of `make engines`
VIRTUAL ?= 2m# time or number of new schedules of `make virtual`
SEED    ?= 0# seed of the first schedule of `make virtual`; 0: random

# Builds and tests use the same settings, so that they share one build cache, also
# between clones in different folders (-trimpath). Only the race detector needs a C
# compiler. nomsgpack leaves MessagePack out of gin: nothing here uses it, and it would
# be a sixth of the binary.
export CGO_ENABLED = 0
export GOFLAGS += -tags=nomsgpack -trimpath

# Tests make the same random choices each time. `make fuzz` makes new ones.
export RAPID_SEED ?= 1

include .ci/tools.env
LINT := bin/tools/golangci-lint-$(GOLANGCI_LINT)

.DEFAULT_GOAL := help
.PHONY: build release vulnerabilities dist dist/check dist/first dist/again chart contract demo cluster docs client client/check console console/types console/dev console/check test test/again virtual virtual/repeat virtual/planted soak soak/quick soak/jobs engines fuzz fuzz/api suites suites/packages lint fmt ci bench bench/b1 bench/b2 bench/b2/real bench/b5 bench/ingest bench/first bench/b6 bench/b6/cpu bench/b7 bench/b9 bench/b11 bench/b12 bench/b12/large bench/console bench/gpu bench/gpu/cpu bench/gpu/carry bench/ops bench/parts bench/peers bench/tokens bench/virtual bench/writes bench/final clean help

build: ## build bin/rowmill, one static binary
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/rowmill ./cmd/rowmill

# The released binary is static and position-independent: each start uses another
# address. Memory that the loader has written is read-only before main starts. The
# build needs the C linker and a static C library (Debian: gcc, libc6-dev). LDFLAGS sets
# version and commit, because Go does not find them in every kind of checkout.
RELEASE ?= dist/rowmill
release: ## build dist/rowmill, the hardened binary of the packages and the image
	CGO_ENABLED=1 $(GO) build -trimpath -buildvcs=false -buildmode=pie -tags=nomsgpack,netgo,osusergo -ldflags '$(LDFLAGS) -linkmode external -extldflags "-static-pie -Wl,-z,relro,-z,now"' -o $(RELEASE) ./cmd/rowmill
	@readelf -dW $(RELEASE) | grep -q 'NOW PIE' && ! readelf -lW $(RELEASE) | grep -E 'INTERP|RWE' || { echo "$(RELEASE) is not a static position-independent binary with read-only relocations" >&2; exit 1; }

# Needs the linkers and C libraries of all ARCHS (Debian: gcc-aarch64-linux-gnu and
# libc6-dev-arm64-cross, or gcc-x86-64-linux-gnu and libc6-dev-amd64-cross).
ARCHS ?= amd64 arm64
CC_amd64 := x86_64-linux-gnu-gcc
CC_arm64 := aarch64-linux-gnu-gcc
PACKAGES ?= dist/packages
dist: build ## make dist/packages for ARCHS: archives, .deb, .rpm, an image, a chart, bills of materials and checksums
	$(foreach arch,$(ARCHS),GOOS=linux GOARCH=$(arch) CC=$(CC_$(arch)) $(MAKE) release RELEASE=dist/bin/$(arch)/rowmill &&) true
	nfpm=$$(.ci/tools nfpm) && libc=$$(echo '#include <features.h>' | $(CC_$(firstword $(ARCHS))) -E -dM - | awk '/__GLIBC__ /{a=$$3} /__GLIBC_MINOR__ /{b=$$3} END {print a "." b}') && \
		$(GO) run ./deploy/dist -version '$(VERSION)' -commit '$(COMMIT)' -built '$(BUILT)' -nfpm "$$nfpm" -libc "$$libc" -to $(PACKAGES) $(ARCHS)

dist/check: dist ## install, run, upgrade and purge the packages on throw-away machines; needs root and Debian's systemd, rpm, podman, crun, curl and jq
	ROWMILL_DIST=$(abspath $(PACKAGES)) ROWMILL_DIST_VERSION='$(VERSION)' ROWMILL_DIST_NFPM="$$(.ci/tools nfpm)" $(GO) test -count=1 -v ./deploy/dist

dist/first: dist ## time each way of the docs from nothing to a finished job; needs the same as dist/check, and builds once more from nothing
	tools=$$(.ci/tools helm) && ROWMILL_FIRST=1 ROWMILL_HELM="$$tools" ROWMILL_DIST=$(abspath $(PACKAGES)) ROWMILL_DIST_VERSION='$(VERSION)' $(GO) test -count=1 -timeout 60m -v -run TestFirstJob ./deploy/dist

dist/again: dist ## check that the last commit gives the same bytes in another folder, with an empty build cache
	case '$(VERSION)' in *-dirty) echo 'there are changes that are not committed' >&2; exit 1 ;; esac
	again=$$(mktemp -d) && trap 'rm -rf "$$again"' EXIT && git clone -q . "$$again/rowmill" && \
		GOCACHE=$$again/cache $(MAKE) -C "$$again/rowmill" dist ARCHS='$(ARCHS)' PACKAGES=dist/packages VERSION='$(VERSION)' && \
		diff $(PACKAGES)/SHA256SUMS "$$again/rowmill/dist/packages/SHA256SUMS"

# The first run builds Helm and the checks of Kubernetes: three minutes on two
# processors. UPDATE=-update writes the rendered chart into deploy/helm/testdata; read
# the changes before you commit them.
UPDATE ?=
chart: ## render all forms of the Helm chart, and check them with Kubernetes' schemas and rules and with the program
	tools=$$(.ci/tools helm) && ROWMILL_HELM="$$tools" $(GO) test -count=1 ./deploy/helm $(UPDATE) && ROWMILL_HELM="$$tools" $(GO) test -count=1 -run Chart ./deploy/dist ./e2e

# The first run builds buf: three minutes of processor time.
contract: ## check the contract between nodes, generate its code, and ask a node with grpc_health_probe
	tools=$$(.ci/tools contract) && released=$$(mktemp -d) && trap 'rm -rf "$$released"' EXIT && \
		git archive "$$(.ci/version release)" cluster/peer/proto | tar -x -C "$$released" && \
		cd cluster/peer/proto && PATH="$$tools:$$PATH" && buf lint && buf generate && buf breaking --against "$$released/cluster/peer/proto" && \
		cd .. && ROWMILL_PROBE="$$tools/grpc-health-probe" $(GO) test -count=1 .

demo: build ## run 1,200 rows on a new node and show the results
	examples/demo.sh

cluster: build ## run three nodes with Redis, an S3 server and simulated GPUs until Ctrl-C
	deploy/cluster.sh

docs: ## make a website of the pages in dist/site; it needs no server
	.ci/tools docs
	bin/tools/hugo-$(HUGO)/bin/hugo build --source docs/site --destination '$(abspath dist/site)' --cleanDestinationDir --noBuildLock --panicOnWarning --quiet

console: ## build the web console and pack it into console/dist; needs Node 20
	.ci/tools console
	cd console/web && npm run build
	$(GO) run ./console/pack console/.build console/dist

OAPI = bin/tools/oapi-codegen-$(OAPI_CODEGEN) -config client/generate/config.yaml
client: ## generate the Go client from http/openapi.yaml
	.ci/tools client
	$(OAPI) -o client/generated.go http/openapi.yaml

client/check: ## check that client/generated.go matches http/openapi.yaml
	.ci/tools client
	out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && $(OAPI) -o "$$out/generated.go" http/openapi.yaml && diff -u client/generated.go "$$out/generated.go"

console/types: ## generate the console's API types from http/openapi.yaml
	.ci/tools console
	bin/tools/types/node_modules/.bin/openapi-typescript http/openapi.yaml -o console/web/src/api/schema.d.ts

console/dev: ## run the console from its sources, with a node (ROWMILL_URL, default http://127.0.0.1:8088)
	.ci/tools console
	cd console/web && npm run dev

console/check: ## check that console/dist matches its sources, and the API types match http/openapi.yaml
	.ci/tools console
	out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && bin/tools/types/node_modules/.bin/openapi-typescript http/openapi.yaml -o "$$out/schema.d.ts" && diff -u console/web/src/api/schema.d.ts "$$out/schema.d.ts"
	out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && (cd console/web && CONSOLE_OUT="$$out" npm run build) && $(GO) run ./console/pack -check "$$out" console/dist

# Tests use the Python packages in the folder of .ci/tools. The path is the same for all
# clones, because Go caches test results by it.
test test/again soak/quick: export PATH := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rowmill/tools/venv/bin:$(PATH)

# PLAIN matches the packages that are tested without the race detector: benchmarks,
# checks of documents, tests of the real binary, and packages without goroutines and
# locks. engine/openai and blob/s3 are tested with and without it: hundreds of megabytes
# take too long under the race detector.
PLAIN = -e '/bench/' -e 'rowmill/docs' -e '/deploy/' -e '/internal/layers$$' -e '/internal/columnar$$' -e '/results$$' -e '/tokenize$$' -e '/engine/catalog$$' -e '/input$$' -e '/input/csv$$' -e '/http/submission$$' -e '/actors/order$$' -e '/actors/commit$$' -e 'rowmill/engine$$' -e '/store/kv/bolt/pages$$' -e '/engine/schema/ecma$$' -e '/engine/sim/jsongen$$' -e '/engine/sim/batching$$'

# Each test runs once. Results of tests of real processes never come from the cache,
# because the cache does not know the binary. make lint runs go vet.
test: build ## run all tests; packages with goroutines run under the race detector
	@failed=0; packages=$$($(GO) list ./... | grep -v /e2e); \
	$(GO) test -vet=off $$(echo "$$packages" | grep $(PLAIN)) ./engine/openai ./blob/s3 || failed=1; \
	export CGO_ENABLED=1; \
	$(GO) test -vet=off -race -short -parallel 4 -timeout 25m $$(echo "$$packages" | grep -v $(PLAIN)) || failed=1; \
	ROWMILL_VIRTUAL=40 $(RERUN) $(GO) test -vet=off -race -count=1 -run 'TestSchedules$$' ./e2e/virtual -from 1 || failed=1; \
	export CGO_ENABLED=0 ROWMILL_BINARY='$(abspath bin/rowmill)'; \
	$(RERUN) $(GO) test -vet=off -count=1 -p 2 -parallel 5 -timeout 25m ./e2e/... || failed=1; \
	.ci/untested; exit $$failed

test/again: build ## run each test that changed since the last commit that passed .ci/run, 20 times
	ROWMILL_BINARY='$(abspath bin/rowmill)' .ci/again

virtual: ## run nodes in virtual time with new random schedules of faults; VIRTUAL is a time (2m) or a number of schedules
	ROWMILL_VIRTUAL=$(VIRTUAL) $(GO) test -vet=off -count=1 -timeout 24h -v -run TestSchedules ./e2e/virtual -from $(SEED)

virtual/repeat: ## check that each of 500 schedules has the same effects every time
	ROWMILL_VIRTUAL_REPEAT=500 $(GO) test -vet=off -count=1 -timeout 1h -run TestSchedulesRepeat ./e2e/virtual

virtual/planted: ## measure how long the schedules take to find deliberate faults in the code
	$(GO) run ./e2e/virtual/planted

soak: ## run the long tests: many kills, large bad inputs, random faults of a cluster for SOAK (1h) with processes and again in virtual time, and real inference servers
	.ci/tools s3
	ROWMILL_SOAK=$(SOAK) $(GO) test -count=1 -timeout 60m -v ./e2e
	ROWMILL_SOAK=$(SOAK) $(GO) test -count=1 -timeout 24h -v -run TestSoak ./e2e/cluster
	$(MAKE) virtual VIRTUAL=$(SOAK)
	$(MAKE) engines

soak/quick: build ## run the tests that depend on the machine's speed or on new seeds, for 20 minutes; do this before you close an issue
	for tool in python frames airflow dagster dbt node console sdk schemathesis s3 otelcol prometheus; do .ci/tools $$tool || exit 1; done; internal/llama/get.sh
	ROWMILL_SOAK=quick ROWMILL_CI=1 ROWMILL_BINARY='$(abspath bin/rowmill)' $(GO) test -count=1 -p 1 -timeout 60m ./tokenize ./e2e ./e2e/cluster
	$(GO) test -count=1 -v ./bench/virtual -size small

soak/jobs: ## run JOBS (10000) jobs of ten accounts on three nodes with faults
	.ci/tools s3
	ROWMILL_JOBS=$(JOBS) $(GO) test -count=1 -timeout 2h -v -run TestCrowd ./e2e/cluster

# Needs an hour and 9 GB of disk for servers with tiny models. To test only some
# servers: make engines SERVERS="vllm sglang"
engines: ## run the checks of inference servers on real servers (SERVERS), and write the results into bench/engines.md
	internal/realserver/get.sh $(SERVERS)
	ROWMILL_ENGINES=1 $(GO) test -count=1 -timeout 3h -p 1 -json -run 'TestReal/(?i)^('"$$(echo $(SERVERS) | tr ' ' '|')"')$$' ./engine/openai ./e2e | $(GO) run ./internal/realserver/table bench/engines.md

fuzz: ## run every fuzz target for FUZZ (10s) each
	.ci/fuzz $(FUZZ)

fuzz/api: ## send good and bad requests from the OpenAPI document to a node, for FUZZ (10s)
	.ci/tools schemathesis
	ROWMILL_FUZZ_API=$(FUZZ) $(GO) test -count=1 -timeout 24h -v -run TestAPIByItsDocument ./e2e

SUITES = ./internal/columnar ./engine/schema ./engine/schema/ecma ./internal/oddjson ./http/request ./http/submission ./input ./engine/openai ./internal/jsonpreserve
suites: build ## test shapes of Parquet files, keywords of five drafts of JSON Schema, patterns as Node.js reads them, all kinds of JSON in all code that reads JSON, and packages of PyPI that send batches
	$(GO) test -vet=off -count=1 -run '^(TestSuite_.*|TestPatternsMeanWhatECMA262Says|TestNodeJSSaysTheSame|TestPropertiesHaveTheirCharacters|TestEncodingJSON)$$' $(SUITES)
	$(MAKE) suites/packages

# The first run downloads 1 GB. make test does not include these tests.
suites/packages: build ## test only the packages of PyPI that send batches
	.ci/tools packages
	ROWMILL_CI=1 ROWMILL_PACKAGES=1 ROWMILL_BINARY='$(abspath bin/rowmill)' $(GO) test -vet=off -count=1 -parallel 2 -v -run '^TestPackages' ./e2e

vulnerabilities: ## list known vulnerabilities in code that the program calls; needs the network
	.ci/tools vulncheck
	bin/tools/govulncheck-$(GOVULNCHECK) -tags nomsgpack ./cmd/rowmill

lint: $(LINT) ## run the linters
	$(LINT) run ./...

fmt: $(LINT) ## format the code
	$(LINT) fmt ./...

$(LINT):
	.ci/tools lint

ci: ## run all checks that a change must pass; works on a fresh machine
	.ci/run

bench: bench/b1 ## measure the row path against its limit (B1); bench/b2, bench/b5, bench/ingest, bench/first, bench/b6, bench/b7, bench/b9, bench/b11, bench/b12, bench/ops, bench/parts, bench/writes and bench/final measure the rest

bench/b1: build
	$(GO) run ./bench/run -rounds $(ROUNDS) b1

# A round takes a quarter of an hour, because simulated GPUs are as slow as real ones.
bench/b2: ROUNDS = 3
bench/b2: build
	$(GO) run ./bench/run -rounds $(ROUNDS) b2

# Needs the servers that make engines installs.
bench/b2/real: ROUNDS = 3
bench/b2/real: SERVERS = llama.cpp vllm ollama
bench/b2/real: build
	for server in $(SERVERS); do $(GO) run ./bench/run -rounds $(ROUNDS) -rows 2000 b2/real $$server || exit 1; done

bench/ingest: build
	$(GO) run ./bench/run -rounds $(ROUNDS) -rows 1000000 ingest

bench/b5: build
	$(GO) run ./bench/run -rounds $(ROUNDS) -rows 60000 -delay 100ms -slots 256 b5

# Writes a data set of 3 GB.
bench/first: build
	$(GO) run ./bench/run -rounds $(ROUNDS) first

# Benchmarks with several nodes need redis-server and .ci/tools s3. Minutes per round:
# b6 18, b6/cpu 4, b9 3, ops 4.
bench/b6: ROUNDS = 1
bench/b6: build
	$(GO) run ./bench/run -rounds $(ROUNDS) b6

bench/b6/cpu: build
	$(GO) run ./bench/run -rounds $(ROUNDS) b6/cpu

bench/b9: ROUNDS = 3
bench/b9: build
	$(GO) run ./bench/run -rounds $(ROUNDS) -length 1m b9

bench/ops: build
	$(GO) run ./bench/run ops

bench/b7: build
	$(GO) run ./bench/run b7

bench/writes: ROUNDS = 3
bench/writes: build
	$(GO) run ./bench/run -rounds $(ROUNDS) -rows 1000000 writes

bench/final: ROUNDS = 1
bench/final: build
	$(GO) run ./bench/run -rounds $(ROUNDS) -rows 650000 final/embeddings

bench/b11: build
	$(GO) run ./bench/run -rounds $(ROUNDS) b11

bench/b12: ROUNDS = 1
bench/b12: build
	$(GO) run ./bench/run -rounds $(ROUNDS) b12

# Needs 20 GB of disk while it runs.
bench/b12/large: ROUNDS = 1
bench/b12/large: build
	$(GO) run ./bench/run -rounds $(ROUNDS) -jobs 12 -greedy 10000000 b12

# Needs a machine with an NVIDIA GPU. The server is vLLM if PYTHON has vLLM, else our own
# server on torch.
PYTHON ?= python3
bench/gpu: ROUNDS = 3
bench/gpu: build ## measure a real server with random 8B weights on this machine's GPU, and compare with a bare load generator and the simulator
	$(GO) run ./bench/run -rounds $(ROUNDS) gpu -python $(PYTHON)

bench/gpu/cpu: ROUNDS = 3
bench/gpu/cpu: build ## run bench/gpu with a tiny model on a CPU; this shows only that the benchmark works
	$(GO) run ./bench/run -rounds $(ROUNDS) gpu -cpu -length 10s -python $(PYTHON)

bench/gpu/carry: ## make bin/gpu.tgz: all files that bench/gpu needs on a machine without Go, network or this repository
	mkdir -p bin/gpu
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/gpu/ ./cmd/rowmill ./bench/run ./bench/generator
	tar -czf bin/gpu.tgz -C bin gpu

bench/virtual: ## measure scheduling in virtual time: tail (B3), prefixes (B4), priority (B10)
	$(GO) test -count=1 -v ./bench/virtual -size small
	$(GO) test -count=1 -v -timeout 60m ./bench/virtual -size full

bench/tokens: ## compare our tokenizer with tiktoken and two Go libraries
	cd bench/tokens && $(GO) run . -rounds $(ROUNDS)

bench/peers: ROUNDS = 3
bench/peers: build
	.ci/tools peers
	$(GO) run ./bench/run -rounds $(ROUNDS) -rows 60000 peers

bench/console: ROUNDS = 1
bench/console: build
	.ci/tools console
	$(GO) run ./bench/run -rounds $(ROUNDS) console

bench/parts:
	$(GO) test -run '^$$' -bench . -count $(ROUNDS) ./input/... ./internal/columnar ./bench/parts

clean: ## remove what the targets above built
	rm -rf bin/rowmill bin/bench bin/gpu bin/gpu.tgz dist .demo .cluster

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9\/]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
