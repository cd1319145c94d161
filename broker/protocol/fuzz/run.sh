#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 60) each; a crash ends the run and leaves its input in artifacts/.
# Usage: run.sh [SECONDS [TARGET…]]
set -euo pipefail
cd "$(dirname "$0")"

seconds="${1:-60}"
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    targets=(frame request response batch records recovery)
fi

# cargo-fuzz wants flags of the nightly compiler; the stable one takes them with this.
export RUSTC_BOOTSTRAP=1
# A target directory shared with ordinary builds would be rebuilt back and forth.
unset CARGO_TARGET_DIR

command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked

for target in "${targets[@]}"; do
    # No frame is longer than -max_len here, so no single allocation may be larger than the budget of such a frame
    # (17 times its size, see wire.rs); batches are given what a decompressor's window needs.
    case "$target" in
        frame | request | response) malloc=2 ;;
        *) malloc=64 ;;
    esac
    echo "fuzz: $target for ${seconds} s"
    mkdir -p "corpus/$target"
    cargo fuzz run --fuzz-dir . "$target" "corpus/$target" -- \
        -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -malloc_limit_mb="$malloc" \
        -timeout=10 -print_final_stats=0
done
