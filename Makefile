# `make help` lists the targets. On a bare Debian machine with Go, git, make and gcc each one fetches what it needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # go itself keeps the processors busy; interleaved output helps nobody

NAME    := csi-node-driver-registrar
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo v0.0.0-unknown)
VERSION := $(VERSION)
COMMIT  ?= $(shell git rev-parse --verify --quiet HEAD || echo unknown)
COMMIT  := $(COMMIT)
export VERSION COMMIT

# os/arch[/variant]; the image holds those of linux.
PLATFORMS := linux/amd64 linux/arm64 linux/arm/v7 linux/ppc64le linux/s390x windows/amd64

# Version and commit are stamped here, so -buildvcs would only add what differs between a clone and a tarball.
# grpcnotrace leaves out grpc's request tracing, which nobody uses here, and with it html/template: 4 MB of the binary.
FLAGS := -trimpath -buildvcs=false -tags grpcnotrace
BUILD := go build $(FLAGS) -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)'

# The architecture level is written out, so that the builder's environment does not change what is built.
LEVEL := GOAMD64=v1 GOARM64=v8.0 GOARM=7 GOPPC64=power8

# Time is counted from the first make, also in the makes and scripts that it starts.
HOLDFAST_START ?= $(shell date +%s)
HOLDFAST_START := $(HOLDFAST_START)
export HOLDFAST_START
say = printf '[%4ds] %s\n' "$$(($$(date +%s) - $(HOLDFAST_START)))"
progress := "$(CURDIR)/.ci/progress.sh"

GOLANGCI_VERSION := v2.15.0
GOLANGCI := .cache/bin/golangci-lint-$(GOLANGCI_VERSION)

# Kubelet's code for the tests: the version in test/kubelet/go.mod, and those of which there is a VERSION.mod.
KUBELET  := v1.36.3
KUBELETS := $(KUBELET) $(patsubst test/kubelet/%.mod,%,$(wildcard test/kubelet/v*.mod))
# compile_kubelet VERSION: compiles with progress what the tests would compile in silence.
kubelet_flags   = $(if $(filter $(KUBELET),$(1)),,-modfile=$(1).mod -tags=kubelet_$(subst .,_,$(basename $(1))))
compile_kubelet = cd test/kubelet && $(progress) "building kubelet $(1)'s plugin manager (minutes, the first time)" \
	go build -v -o /dev/null $(call kubelet_flags,$(1)) ./cmd/kubelet

# With -v, for what is skipped must be seen. Of a package's tests, only those that did not pass are shown; of
# kubelet's scenarios, which take minutes, all that they say.
gotest   := CGO_ENABLED=1 go test -race -v
failures := awk -f .ci/terse.awk
live     := grep --line-buffered -vE '^ *=== (RUN|PAUSE|CONT|NAME) |^ +--- PASS'

STORM      ?= 30s
SOAK_STORM ?= 10m
PASSES     ?= 20
# The same for the kubelets that are not the one of make test.
OTHER_PASSES ?= 5
OTHER_STORM  ?= 2m
FUZZTIME   ?= 30s

##@ Build and see

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: bin/$(NAME) ## Build the static binary for this machine: bin/csi-node-driver-registrar

.PHONY: bin/$(NAME)
bin/$(NAME):
	@CGO_ENABLED=0 $(progress) "building $@" $(BUILD) -v -o $@ ./cmd/$(NAME)

.PHONY: demo
demo: build ## See kubelet lose a driver, and keep it with Holdfast (no cluster needed)
	@$(call compile_kubelet,$(KUBELET))
	@$(progress) "building a CSI driver and an incumbent-like peer" go build -v -o /dev/null ./test/...
	@cd test/kubelet && HOLDFAST_BIN=../../bin/$(NAME) go run ./cmd/demo

##@ Test

.PHONY: test
test: fmt-check vet lint test-root test-kubelet test-e2e ## Everything, once: format, vet, lint, all tests with -race, a 30 s storm
	@$(say) "make test: all passed"

.PHONY: fmt-check
fmt-check:
	@$(say) "gofmt …"
	@unformatted=$$(gofmt -l cmd pkg test) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not formatted; run gofmt -w on:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet:
	@for os in linux windows; do \
		CGO_ENABLED=0 GOOS=$$os $(progress) "go vet for $$os" go vet -v ./...; \
	done
	@cd test/e2e && $(progress) "go vet in test/e2e" go vet -v ./...
	@cd test/e2e/node && $(progress) "go vet in test/e2e/node" go vet -v $(NODE_PACKAGES)

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, for linux and for windows, and for the tests with kubelet and a node
	@$(say) "golangci-lint …"
	@$(GOLANGCI) run --allow-parallel-runners ./...
	@$(say) "golangci-lint for windows …" # what is unused there may be used on linux
	@CGO_ENABLED=0 GOOS=windows $(GOLANGCI) run --allow-parallel-runners --disable unused --tests=false ./...
	@$(call compile_kubelet,$(KUBELET))
	@$(say) "golangci-lint in test/kubelet …"
	@cd test/kubelet && ../../$(GOLANGCI) run --allow-parallel-runners ./...
	@cd test/e2e && $(progress) "building what test/e2e needs" go build -v ./...
	@$(say) "golangci-lint in test/e2e …"
	@cd test/e2e && ../../$(GOLANGCI) run --allow-parallel-runners ./...
	@$(say) "golangci-lint in test/e2e/node …"
	@cd test/e2e/node && ../../../$(GOLANGCI) run --allow-parallel-runners $(NODE_PACKAGES)

# Outside of go.mod, so that the linter's dependencies are none of ours.
$(GOLANGCI):
	@mkdir -p $(@D)
	@GOOS= GOARCH= GOBIN="$(CURDIR)/$(@D)" $(progress) "building golangci-lint $(GOLANGCI_VERSION) (about a minute, once)" \
		go install -v github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(@D)/golangci-lint $@

.PHONY: test-root
test-root:
	@$(say) "go test -race ./... (the first time it compiles with the race detector: some minutes)"
	@$(gotest) ./... | $(failures)
	@$(say) "the explorer once more, without -race and with its large scenarios"
	@go test -count=1 -v -run '^TestExplorer$$' ./pkg/ownership ./pkg/endpoint | $(failures)

.PHONY: test-kubelet
test-kubelet:
	@$(call compile_kubelet,$(KUBELET))
	@$(say) "kubelet $(KUBELET): the scenarios, and a storm of $(STORM) …"
	@cd test/kubelet && HOLDFAST_STORM=$(STORM) $(gotest) -timeout 60m ./... | $(live)

# What of the tests on a node needs no node.
.PHONY: test-e2e
test-e2e:
	@$(say) "the tests of test/e2e that need no node …"
	@cd test/e2e && go test -v ./kit ./cmd/... | awk -f ../../.ci/terse.awk
	@cd test/e2e/node && go test -v . | awk -f ../../../.ci/terse.awk

# A node on this machine, as root: bin/e2e holds the programs and images, .cache/e2e what is built once, and logs.
E2E        ?=
E2E_PASSES ?= 1
ARCH       := $(shell go env GOARCH)
E2E_NODE   := $(CURDIR)/bin/e2e/node

# Without cmd/controlplane: that is all of Kubernetes, which vet and lint would compile once more, differently.
NODE_PACKAGES := . ./cmd/node ./cmd/pause

# What CI runs of it, some minutes: the ways to overlap that lose a driver, what comes after them, and what is promised
# of the node. Of a test's cases those with either registrar, and one of the others.
E2E_CI := TestSurge TestCopy TestRecreateSidecar TestMigrate TestRollBack TestRestartAfterSurge TestThreeDrivers TestRestricted TestStrict TestNothingLeft
space  := $(subst ,, )

# One node a machine: whoever comes second waits. The lock is on the directory in which the node makes its own; the
# node must not inherit it, or it outlives a crash.
.PHONY: e2e
e2e: e2e-images ## DaemonSets and pods on a real Kubernetes node on this machine (root); E2E=regexp selects tests
	@exec 9</var/lib; \
	flock --nonblock 9 || { $(say) "another make e2e runs on this machine; waiting for its end …"; flock 9; }; \
	trap '$(E2E_NODE) down' EXIT; \
	$(E2E_NODE) up 9>&-; \
	$(E2E_NODE) load bin/e2e/*.tar; \
	cd test/e2e; \
	$(progress) "building the tests" go test -exec true ./...; \
	HOLDFAST_E2E_RESTART_KUBELET='$(E2E_NODE) restart kubelet' $(E2E_NODE) run -- \
		go test -v -p 1 -count=$(E2E_PASSES) -timeout 0 $(if $(value E2E),-run '$(value E2E)') ./... | grep --line-buffered -vE '^ *=== (RUN|PAUSE|CONT|NAME) '
	@$(say) "make e2e: all passed"

.PHONY: e2e-ci
e2e-ci: ## The part of it that CI runs, some minutes
	@for t in $(E2E_CI); do grep -q "^func $$t(" test/e2e/*_test.go || { echo "test/e2e has no $$t: mend E2E_CI in the Makefile" >&2; exit 1; }; done
	@$(MAKE) --no-print-directory e2e E2E='^($(subst $(space),|,$(E2E_CI)))$$/^(peer|holdfast|surge|killed|ending)$$'

.PHONY: e2e-report
e2e-report: export HOLDFAST_E2E_REPORT := $(CURDIR)/bin/e2e/report
e2e-report: ## The same, and a timeline and a picture of each case: bin/e2e/report
	@rm -rf $(HOLDFAST_E2E_REPORT)
	@status=0; $(MAKE) --no-print-directory e2e || status=$$?; \
	cd test/e2e && go run ./cmd/report $(HOLDFAST_E2E_REPORT); \
	$(say) "make e2e-report: $(HOLDFAST_E2E_REPORT)"; exit $$status

.PHONY: e2e-node
e2e-node: bin/e2e/node ## The node itself: after its end, by whatever, the machine is as it was
	@$(E2E_NODE) up && $(E2E_NODE) down # builds the control plane if need be
	@cd test/e2e/node && HOLDFAST_E2E_CACHE=$(CURDIR)/.cache/e2e go test -v -count=1 .

.PHONY: e2e-images
e2e-images: bin/linux-$(ARCH)/$(NAME) image-tools bin/e2e/node ## Their images: bin/e2e/{registrar,peer,driver}.tar
	@for b in peer driver; do \
		CGO_ENABLED=0 $(progress) "building test/$$b" $(BUILD) -v -o bin/e2e/$$b ./test/$$b; \
		bin/e2e/node pack localhost/holdfast/$$b:e2e bin/e2e/$$b bin/e2e/$$b.tar; \
	done
	@$(say) "making the registrar's image …"
	@IMAGE_PLATFORMS=linux/$(ARCH) .ci/image.sh bin/e2e/registrar >/dev/null
	@rm -f bin/e2e/registrar.tar
	@skopeo copy --quiet oci:bin/e2e/registrar:$(VERSION) docker-archive:bin/e2e/registrar.tar:localhost/holdfast/registrar:e2e

.PHONY: bin/e2e/node
bin/e2e/node:
	@cd test/e2e/node && CGO_ENABLED=0 $(progress) "building $@" go build -trimpath -buildvcs=false -v -o ../../../$@ ./cmd/node

.PHONY: cross
cross: ## Build and vet for every platform, windows/amd64 included: bin/<os>-<arch>/
	@for p in $(PLATFORMS); do \
		IFS=/ read -r os arch _ <<<"$$p"; \
		$(MAKE) --no-print-directory "bin/$$os-$$arch/$(NAME)"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(LEVEL) $(progress) "go vet for $$p" go vet -v $(FLAGS) ./...; \
	done

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (30s)
	@grep -rHoE --include='*_test.go' '^func Fuzz\w+' pkg cmd | while IFS=: read -r file func; do \
		$(say) "$${func#func } in $$(dirname "$$file"), $(FUZZTIME)"; \
		go test "./$$(dirname "$$file")" -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) </dev/null; \
	done

.PHONY: soak
soak: ## An hour: the explorer's largest scenarios, PASSES (20) passes and a storm of 10 min, then older and newer kubelets
	@$(say) "the explorer, with everything at once (minutes, and gigabytes of memory) …"
	@EXPLORE=soak go test -count=1 -timeout 60m -p 1 -run '^TestExplorer$$' ./pkg/ownership ./pkg/endpoint
	@$(call compile_kubelet,$(KUBELET))
	@$(say) "200 starts of each driver, 100 handovers and 100 kills …"
	@cd test/kubelet && HOLDFAST_STARTS=200 HOLDFAST_HANDOVERS=100 $(gotest) -timeout 0 -run '^(TestDriverStarts|TestAnsweredAllTheTime)$$' . | $(live)
	@$(MAKE) --no-print-directory soak-$(KUBELET)
	@for v in $(filter-out $(KUBELET),$(KUBELETS)); do $(MAKE) --no-print-directory PASSES=$(OTHER_PASSES) SOAK_STORM=$(OTHER_STORM) "soak-$$v"; done
	@$(say) "make soak: all passed"

soak-%: FORCE
	@$(call compile_kubelet,$*)
	@$(say) "kubelet $*: $(PASSES) passes of the scenarios …"
	@cd test/kubelet && HOLDFAST_KUBELET=$(filter-out $(KUBELET),$*) $(gotest) -timeout 0 -count $(PASSES) -skip '^TestStorm$$' . | $(live)
	@$(say) "kubelet $*: a storm of $(SOAK_STORM) …"
	@cd test/kubelet && HOLDFAST_KUBELET=$(filter-out $(KUBELET),$*) HOLDFAST_STORM=$(SOAK_STORM) $(gotest) -timeout 0 -run '^TestStorm$$' . | $(live)

##@ Measure and ship

.PHONY: bench
bench: build ## Measure; with PEER=/path/to/another/registrar the same for it, side by side
	@$(progress) "building a CSI driver and an incumbent-like peer" go build -v -o /dev/null ./test/...
	@cd test/kubelet && $(progress) "building the benchmark" go build -v -o /dev/null ./cmd/bench
	@cd test/kubelet && HOLDFAST_BIN=../../bin/$(NAME) PEER=$(abspath $(PEER)) go run ./cmd/bench $(BENCHFLAGS)

bin/%/$(NAME): FORCE
	@os=$(word 1,$(subst -, ,$*)) arch=$(word 2,$(subst -, ,$*)); \
	CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(LEVEL) \
		$(progress) "building $@" $(BUILD) -v -o $@ ./cmd/$(NAME)

.PHONY: FORCE
FORCE:

LINUX_BINARIES := $(foreach p,$(filter linux/%,$(PLATFORMS)),bin/linux-$(word 2,$(subst /, ,$(p)))/$(NAME))

.PHONY: image
image: $(LINUX_BINARIES) image-tools ## Make the image for five architectures: bin/image, an OCI layout
	@$(say) "making the image …"
	@digest=$$(IMAGE_PLATFORMS="$(filter linux/%,$(PLATFORMS))" .ci/image.sh bin/image); \
	$(say) "bin/image, tag $(VERSION), $$digest"; \
	echo "push it with: skopeo copy --all oci:bin/image:$(VERSION) docker://REGISTRY/$(NAME):$(VERSION)"

.PHONY: image-check
image-check: ## Make the image in two directories; fail unless the digests are the same, it is small and each binary runs
	@.ci/image-tools.sh qemu-aarch64-static
	@.ci/image-check.sh

.PHONY: image-tools
image-tools:
	@.ci/image-tools.sh

.PHONY: clean
clean: ## Remove bin/ and .cache/ (Go's own caches stay)
	rm -rf bin .cache
