# vmlet. `make demo` and `make test`, as root on a Debian machine with Go and
# make, install the packages that are missing and do everything.

GO      ?= go
# Where Go's own instructions put it, and what sudo leaves out.
export PATH := $(PATH):/usr/local/go/bin
# What make build builds.
PROGRAMS ?= ./cmd/...
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Where make build puts the programs; the other targets use bin.
BIN     ?= bin
LDFLAGS := -s -w -X main.version=$(VERSION)
# Without gRPC's trace pages, which nobody serves: their templates call methods by
# name, for which the linker would keep every method of every type (5 MB).
TAGS    := grpcnotrace

.PHONY: help build demo test check arm64 lint generate generate-rbac bench bench-cluster cluster cluster-redeploy image node-image cluster-image fuzz chaos chaos-cluster vulncheck clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What is built, vetted and built by tests is compiled alike, and so once.
build lint check: export CGO_ENABLED = 0
build lint check: export GOFLAGS += -trimpath

build: ## the programs, in bin/
	$(GO) build -buildvcs=false -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/ $(PROGRAMS)

# The node's three need none of Kubernetes' large libraries: a third of the time.
demo: PROGRAMS = ./cmd/vmlet ./cmd/vmlet-agent ./cmd/vmlet-shim
demo: ## boot a Linux guest, save it, restore it, see it go on
	test/setup demo
	@echo "building vmlet, vmlet-agent and vmlet-shim (once; a minute or two on two cores)"
	$(MAKE) --no-print-directory build PROGRAMS="$(PROGRAMS)"
	test/demo

# A part of the cluster's tests, on the cluster that make cluster runs, or else on one of its own.
PART ?=

# What the part autoscaling needs, which few want.
METRICS_SERVER = $(if $(VMLET_EVERYTHING)$(filter autoscaling,$(PART)),test/setup metrics-server)

ifneq ($(PART),)
test: export CGO_ENABLED = 0
test: export GOFLAGS += -trimpath
test:
	test/setup test
	$(METRICS_SERVER)
	deploy/image/packages --any >/dev/null
	VMLET_SHARED_CLUSTER=1 $(GO) test -vet=off -count=1 -v -timeout $(TIMEOUT) ./test/virtualmachines -run 'TestVirtualMachines/$(PART)$$'
	@echo "vmlet: $(PART) passed"
else
test: ## every check and every test; PART=hibernate: a part of the cluster's; TIMES=FILE: what each package takes; VMLET_EVERYTHING=1: all versions and hypervisors
	test/setup test
	$(METRICS_SERVER)
	deploy/image/packages --any >/dev/null
	$(MAKE) --no-print-directory -j2 lint build arm64
	@$(MAKE) --no-print-directory -j3 test-vms test-nodes test-rest
	@echo "vmlet: every check and test passed"
endif

# Packages whose tests start VMs or clusters: a few run (test/suites), the next is being built. Those that last longest begin.
LONG = ./test/virtualmachines ./test/e2e
VMS  = $(LONG) $(filter-out $(LONG),$(shell grep -rl --include='*_test.go' 'suites[.]StartsVMs' . | xargs -n1 dirname | sort -u))

# A suite's time, with its wait for others: one that hangs says where before anybody gives up.
# -vet=off: lint has vetted all of it, and here all that it depends on would be, once more.
TIMEOUT ?= $(if $(VMLET_EVERYTHING),4h,70m)

# Packages with walks of states, which suites.Walk leaves out under -race: their tests run without it, too.
WALKS = $(shell grep -rl --include='*_test.go' 'suites[.]Walk(t)' . | xargs -n1 dirname | sort -u)

# A file that gets a line of each package: what its tests took.
TIMES ?=
TESTED = $(GO) test -vet=off -count=1 -timeout $(TIMEOUT) $(if $(TIMES),-exec '$(CURDIR)/test/timed $(abspath $(TIMES))')

.PHONY: test-vms test-nodes test-rest
test-vms:
	$(TESTED) -race -p 3 -skip '^TestTwoNodes$$' $(VMS)
test-nodes:
	$(TESTED) -race -run '^TestTwoNodes$$' ./test/virtualmachines
test-rest:
	$(TESTED) -race -p 1 $(filter-out $(VMS:./%=github.com/vmlet/vmlet/%),$(shell $(GO) list ./...))
	CGO_ENABLED=0 GOFLAGS="$$GOFLAGS -trimpath" $(TESTED) -p 1 $(WALKS)

check: ## build, vet, and test what changed and what imports it, without VMs; BASE=COMMIT: since then
	$(GO) build ./...
	$(GO) vet ./...
	@test/check $(GO) $(VMS:./%=github.com/vmlet/vmlet/%)

arm64: ## see that the node's programs compile for arm64; VMLET_EVERYTHING=1 for all of it
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build $(if $(VMLET_EVERYTHING),./...,./cmd/vmlet ./cmd/vmlet-agent ./cmd/vmlet-shim ./cmd/vmlet-importer)

lint: ## gofmt, go vet, staticcheck, buf lint, shellcheck, generated code up to date, plain words
	test/setup lint
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	  if [ -n "$$unformatted" ]; then echo "not gofmt-clean: $$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) tool -modfile=tools/buf/go.mod buf lint
	test/generated $(GO)
	$(GO) test -C tools ./words
	$(GO) run -C tools ./words ..
	shellcheck -x .ci/run api/generate autopilot/catalog/assets/active/machine-config/swap-watermarks.sh deploy/image/packages test/setup test/check test/timed test/demo test/generated test/fuzz test/guest/disk/recipe test/systemd/run

generate: ## what is made from proto/, api/ and autopilot/catalog/
	$(GO) tool -modfile=tools/buf/go.mod buf generate
	api/generate $(GO)

generate-rbac: ## the autopilot's roles, from its catalogue
	$(GO) run ./cmd/vmlet-autopilot rbac >deploy/autopilot/role.yaml.new
	mv deploy/autopilot/role.yaml.new deploy/autopilot/role.yaml

bench: ## times beside bare QEMU and virsh, in one table
	test/setup bench
	test/setup cluster
	$(MAKE) --no-print-directory build
	$(GO) run ./test/bench

# Of how many VMs, created 100 ms apart, the starts are timed.
VMS_AT_ONCE ?= 50

bench-cluster: ## starts of VMs on a cluster of one node, beside pods, in one table
	test/setup cluster
	deploy/image/packages --any >/dev/null
	$(GO) run ./test/bench -rows cluster-start -runs 20 -vms $(VMS_AT_ONCE)

# Further tars of images to import.
IMAGES ?=
NODES  ?= 1

cluster: ## a Kubernetes cluster with vmlet in it, until Ctrl-C; NODES=2: of two nodes
	test/setup cluster
	$(MAKE) --no-print-directory image PACKAGES=--any
	$(GO) run ./test/cluster/up -nodes $(NODES) -programs $(BIN) -deploy deploy/cluster,deploy/autopilot dist/vmlet-image.tar dist/vmlet-cluster-image.tar $(IMAGES)

cluster-redeploy: build ## what was rebuilt, into the cluster that make cluster runs
	$(GO) run ./test/cluster/up -redeploy -programs $(BIN)

FUZZTIME ?= 1m
FUZZ     ?= .

fuzz: ## each fuzz target for FUZZTIME (1m), or those that match FUZZ
	test/fuzz $(GO) $(FUZZTIME) '$(FUZZ)'

# How long VMs are kept busy while processes are killed; VMLET_CHAOS_SEED=N, as a failure
# prints it, repeats what is done and who is killed.
CHAOSTIME ?= 10m

chaos: ## every fault at every step, then kills at random under load for CHAOSTIME (10m)
	test/setup test
	VMLET_CHAOS=$(CHAOSTIME) $(GO) test -count=1 -v -timeout 2h -run 'Faults|PowerCut|Resealed' \
	  ./memory ./agent/store ./internal/atomicfile ./shim/internal/...
	VMLET_EVERYTHING=1 $(GO) test -race -count=1 -timeout 2h ./test/e2e ./test/guest ./test/libvirt ./cmd/vmlet-shim
	VMLET_CHAOS=$(CHAOSTIME) $(GO) test -race -count=1 -v -timeout 24h -run '^(TestFaultWalk|TestChaos.*)$$' ./test/e2e

# How many rounds there are; VMLET_CHAOS_SEED=N, which is printed first, repeats them.
CHAOSROUNDS ?= 50

chaos-cluster: ## two nodes: all that runs is killed, cut off and frozen at random while VMs come and go; CHAOSROUNDS=50
	test/setup test
	deploy/image/packages --any >/dev/null
	VMLET_CHAOS_ROUNDS=$(CHAOSROUNDS) VMLET_CHAOS_SEED=$${VMLET_CHAOS_SEED:-$$(date +%s)} \
	  $(GO) test -race -vet=off -count=1 -v -timeout 96h ./test/virtualmachines -run '^TestTwoNodes$$/^chaos$$'

# Go's database of vulnerabilities is on the network; VULNDB=file:///FOLDER is a copy.
vulncheck: ## known faults in modules that are used, and in Go
	$(GO) tool -modfile=tools/go.mod govulncheck $(if $(VULNDB),-db '$(VULNDB)') -tags $(TAGS) ./...

# The image that deploy/ names. Nobody can own a name that ends in .invalid (RFC 2606):
# where a node lacks the image, no stranger's is pulled in its place.
IMAGE ?= vmlet.invalid/vmlet:local
CLUSTER_IMAGE ?= vmlet.invalid/vmlet-cluster:local

# A cloud-hypervisor for the image, with its firmware: files.
CLOUD_HYPERVISOR ?=
CLOUD_HYPERVISOR_FIRMWARE ?=

# Static programs that speak the driver protocol, each named after its VMM.
DRIVERS ?=

# --any: Debian's packages as they were fetched last time.
PACKAGES ?=

image: build ## dist/*.tar, vmlet with QEMU, and the cluster's programs, as container images; CLOUD_HYPERVISOR=FILE adds that
	$(MAKE) --no-print-directory node-image cluster-image

# Of the programs that make build made.
node-image:
	@mkdir -p dist
	packages=$$(deploy/image/packages $(PACKAGES)) && $(GO) run ./deploy/image -programs $(BIN) -packages "$$packages" \
	  -reference $(IMAGE) -version $(VERSION) -cloud-hypervisor "$(CLOUD_HYPERVISOR)" \
	  -cloud-hypervisor-firmware "$(CLOUD_HYPERVISOR_FIRMWARE)" $(DRIVERS:%=-driver %) -profiles deploy/stacks -o dist/vmlet-image.tar

cluster-image:
	@mkdir -p dist
	$(GO) run ./deploy/image -programs $(BIN) -cluster -reference $(CLUSTER_IMAGE) -version $(VERSION) -o dist/vmlet-cluster-image.tar

clean: ## what make build made
	rm -rf bin dist
