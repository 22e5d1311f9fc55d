# Recipes for https://just.systems. What a change must pass is `.ci/run`; those marked CI do what its
# steps do.

# List the recipes.
default:
    @just --list

# Format the code.
fmt:
    cargo fmt --all

# CI: see that the code is formatted.
fmt-check:
    cargo fmt --all --check

# CI: lints.
lint:
    cargo clippy --workspace --all-targets --features fpcache-eval/workbench --locked -- -D warnings
    cargo clippy -p fpcache-datasets -p fpcache-memserver --no-default-features --locked -- \
        -D warnings
    cargo clippy -p fpcache-client --locked -- -D warnings

# CI: the fuzz targets compile; needs a C++ compiler.
fuzz-check:
    cargo check --manifest-path fuzz/Cargo.toml --target-dir target --locked

# CI: documentation.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# CI: all tests that are not ignored.
test:
    cargo test --workspace --locked

# CI: clients in a simulated world.
simulated:
    cargo test -p fpcache-client --features sim --test simulated --locked

# CI: simulated worlds, and the protocol broken on purpose.
worlds seeds="300":
    FPCACHE_SIM_SEEDS={{seeds}} \
        cargo test --release -p fpcache-eval --test worlds --features sabotage --locked

# CI: a few million operations have an order.
linearizability:
    cargo test --release -p fpcache-eval --test histories --locked -- --ignored linearizability

# CI: the hot cache under the model checker.
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
        cargo test --release -p fpcache --lib --locked cache::

# CI: calibration of the stand-ins at full size.
calibration:
    cargo test --release -p fpcache-datasets --test generators --locked -- --ignored

# CI: the quickstart, small unless told otherwise.
quickstart *arguments="--size small":
    cargo run --release --locked -- quickstart {{arguments}}

# All binaries.
build:
    cargo build --release --workspace --locked

# All of CI.
ci:
    .ci/run

# One criterion bench, such as `just bench fpcache lookup`, or a part of it by a filter.
bench package name *filter:
    cargo bench -p {{package}} --bench {{name}} --locked -- {{filter}}

# An experiment, such as `just eval run --dataset fb:16M`.
eval *arguments:
    cargo run --release --locked -- {{arguments}}

# Licences, sources and advisories of dependencies; needs cargo-deny.
deny:
    cargo deny --locked check

# CI: the crates as they would be published.
package:
    cargo package --workspace --exclude fpcache-eval --exclude fpcache-rf-rpc --exclude fpcache-workbench --no-verify --allow-dirty --locked

# RDMA under Soft-RoCE in a QEMU guest: the conformance suite, and processes. fabric/README.md has the packages it needs.
rdma:
    fabric/rdma/guest.sh check
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER={{justfile_directory()}}/fabric/rdma/guest.sh \
        cargo test -p fpcache-fabric -p fpcache-rf-rpc --features fpcache-fabric/rdma,fpcache-rf-rpc/rdma --lib \
        --test conformance --test calls --locked -- --include-ignored rdma --test-threads 1
    cargo build --locked -p fpcache-eval -p fpcache-memserver -p fpcache-cli \
        --features fpcache-eval/rdma,fpcache-memserver/rdma,fpcache-cli/rdma
    fabric/rdma/guest.sh run fabric/rdma/processes.sh target/debug
    FPCACHE_KILLS=3 FPCACHE_NODES_BATCHES=1 CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER={{justfile_directory()}}/fabric/rdma/guest.sh \
        cargo test -p fpcache-eval --features rdma --test histories --test kill_nine --locked -- --ignored rdma \
        --test-threads 1
