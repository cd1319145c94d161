# Kuorum. `make` alone lists what there is. `verify` and `test` never edit a file; `fix` is the only target that does.

CLUSTER_DIR ?= .cluster
PORT_BASE ?= 9092
SET ?=
SEEDS ?= 200
SEED ?=
SECONDS ?= 60
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
BIN_DIR ?= $(TARGET_DIR)/release

# `SET=` on the command line, with nothing in it, takes stored settings away.
SET_CLEARED := $(if $(SET),,$(findstring command line,$(origin SET)))
export CLUSTER_DIR PORT_BASE SET SET_CLEARED BIN_DIR

CLUSTER := deploy/cluster.sh

.PHONY: help
help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/; s/\$$\$$/$$/' | expand -t 24
	@echo 'The local cluster takes CLUSTER_DIR=.cluster PORT_BASE=9092 SET="key=value …"'

# --- the local cluster: CLUSTER_DIR=.cluster PORT_BASE=9092 SET="key=value …" -------------------------------------------

.PHONY: build up down clean status logs env demo
# Always the same packages together: other sets would share features differently, and compile the dependencies anew.
build: ## all programs, optimised
	cargo build --release --locked -p kuorum-controller -p kuorum-broker -p kuorum-cli -p kuorum-chaos-tests --bins

up: build ## build, then start three controllers and three brokers (a new cluster, or the one in CLUSTER_DIR)
	@$(CLUSTER) up

down: ## stop all six processes; the data stays
	@$(CLUSTER) down

clean: ## stop all six processes and delete the data
	@$(CLUSTER) clean

status: ## nodes, processes and health
	@$(CLUSTER) status

logs: ## the logs of all processes, merged by time
	@$(CLUSTER) logs

env: ## where the cluster is, for kuorum: export $$(make -s env)
	@$(CLUSTER) env

VERBS := kill stop start pause resume
.PHONY: $(foreach v,$(VERBS),$(v)-broker $(v)-controller $(v)-node) wipe-broker
$(foreach v,$(VERBS),$(v)-broker): ; @$(CLUSTER) $(firstword $(subst -, ,$@)) broker $(ID)
$(foreach v,$(VERBS),$(v)-controller): ; @$(CLUSTER) $(firstword $(subst -, ,$@)) controller $(ID)
$(foreach v,$(VERBS),$(v)-node): ; @$(CLUSTER) $(firstword $(subst -, ,$@)) node $(ID)
wipe-broker: ## delete a stopped broker's data: wipe-broker ID=n (likewise kill-, stop-, start-, pause-, resume- and -broker, -controller, -node)
	@$(CLUSTER) wipe broker $(ID)

.PHONY: add-broker
add-broker: ## one more broker, to move replicas to: add-broker ID=4 (up to 9)
	@$(CLUSTER) add broker $(ID)

demo: build ## kill a leader under 100,000 bank transfers, and count what was lost
	@$(BIN_DIR)/demo

# --- proofs -----------------------------------------------------------------------------------------------------------

.PHONY: test sim sim-mutations sim-shells shells-build conformance bench bench-failover fuzz chaos chaos-smoke chaos-mutations chaos-build
test: ## unit, table, property, simulation and multi-process tests
	cargo test --locked --workspace

sim: build shells-build ## seeded simulation of replication and elections: SEEDS=n, or SEED=s to replay one; a tenth as many of sim-shells
	$(BIN_DIR)/sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))
	$(if $(SEED),,$(BIN_DIR)/sim-shells --seeds $$(( ($(SEEDS) + 9) / 10 )))

sim-mutations: ## the simulation and its stories with each rule removed, one at a time: each time a property must be found broken
	cargo test --release --locked -p kuorum-chaos-tests --features mutations --test mutations
	cargo test --release --locked -p kuorum-chaos-tests --features mutations --test stories -- stories_miss_their_rules

sim-shells: shells-build ## controllers with openraft, brokers and clients on a simulated network and disks: SEEDS=n, or SEED=s to run one again
	$(BIN_DIR)/sim-shells $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

# By itself: it needs what tokio has for tests, which must not get into the programs.
shells-build:
	cargo build --release --locked -p kuorum-shell-tests --bins

# The programs of `chaos` are others: their disks forget what was not synced, and fail by order. They lie in a folder of their own.
CHAOS := $(TARGET_DIR)/chaos/chaos
CHAOS_BUILD := cargo build --profile chaos --locked -p kuorum-controller -p kuorum-broker -p kuorum-cli -p kuorum-chaos-tests --bins --features kuorum-broker/chaos,kuorum-controller/chaos,kuorum-chaos-tests/chaos
chaos-build:
	$(CHAOS_BUILD)

chaos: chaos-build ## every scenario with real processes, each with a report in .chaos-report: SCENARIO=name, SEED=1, SCALE=1 (10 is a tenth of the power cut)
	$(CHAOS) $(addprefix --scenario ,$(SCENARIO))

chaos-mutations: ## every scenario with each rule it guards removed from the programs, one at a time: each time it must fail. SCENARIO=name
	$(CHAOS_BUILD),kuorum-broker/mutations,kuorum-controller/mutations,kuorum-chaos-tests/mutations
	$(CHAOS) --mutations --scale 10 $(addprefix --scenario ,$(SCENARIO))

chaos-smoke: chaos-build ## the scenarios that CI runs, in four minutes
	$(CHAOS) --smoke --scale 10

conformance: build ## other people's Kafka clients against a real local cluster
	chaos-tests/conformance/run.sh

bench: build ## criterion for the hot paths, then end to end, each beside this machine's own limit
	chaos-tests/bench/run.sh

bench-failover: build ## how long writes stop when a leader dies or freezes, for our producer, librdkafka and Java: KILLS=50 PAUSES=5 STOCK_KILLS=50 STOCK_PAUSES=1; picture in .bench/failover.html
	$(BIN_DIR)/bench-failover

fuzz: ## every decoder against hostile bytes: SECONDS=n for each target
	broker/protocol/fuzz/run.sh $(SECONDS)

# --- the code ---------------------------------------------------------------------------------------------------------

.PHONY: verify fmt-check clippy layers doc fix
verify: fmt-check layers clippy doc test ## what CI runs; never edits a file

fmt-check:
	cargo fmt --all --check

clippy:
	cargo clippy --locked --workspace --all-targets -- -D warnings

layers: ## which crate may know which (docs/ARCHITECTURE.md)
	deploy/layers.sh

doc:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps -q

fix: ## format, and let clippy mend what it can
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged
