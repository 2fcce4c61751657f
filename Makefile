# What there is to do here; `make help` prints this list.

CARGO ?= cargo
TEST_THREADS ?= 4
FUZZ_SECONDS ?= 60
# The part that needs nothing but Rust: one store, no generated code.
MINIMAL = --no-default-features --features sqlite

.PHONY: help demo build test check fix fuzz bench prepare prepare-build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1 \t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## three nodes on this machine, one of which dies; needs nothing but Rust
	@echo "Building bellwether with its SQLite store only: under two minutes on two cores the first time, then seconds."
	$(CARGO) build --profile demo $(MINIMAL)
	$${CARGO_TARGET_DIR:-target}/demo/bellwether demo $(DEMO)

build: prepare-build ## the daemon with every store, optimised: target/release/bellwether
	$(CARGO) build --release

test: prepare ## everything, against real servers; installs what is missing
	$(CARGO) test --all-features -- --test-threads=$(TEST_THREADS)

check: prepare-build ## what must hold before a change is merged; changes nothing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets --all-features -- -D warnings
	$(CARGO) check $(MINIMAL)
	$(CARGO) check --no-default-features
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --all-features
	$(CARGO) test --all-features --test layering --test dependencies
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check bans licenses sources; \
	else echo "cargo-deny is not installed: the same rules were checked by tests/dependencies.rs"; fi

fix: ## format, and let clippy mend what it can
	$(CARGO) fmt --all
	$(CARGO) clippy --fix --allow-dirty --allow-staged --all-targets --all-features

fuzz: prepare-build ## inputs that nobody thought of, FUZZ_SECONDS (60) for each target
	FUZZ_SECONDS=$(FUZZ_SECONDS) $(CARGO) test --all-features --lib fuzz:: -- --nocapture --test-threads=1

bench: prepare-build ## CPU per request through two hops, beside HAProxy and nginx where they are installed
	$(CARGO) bench --bench two_hops -- $(BENCH)

prepare:
	@scripts/prepare.sh test

prepare-build:
	@scripts/prepare.sh build
