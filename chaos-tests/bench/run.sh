#!/usr/bin/env bash
# The table of `make bench`: criterion for the hot paths, then a real cluster, each figure beside what this machine can do at most.
# The driver is librdkafka's own example `rdkafka_performance`, built from Debian's librdkafka-dev (installed if this runs as root).
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
work=${BENCH_DIR:-.bench}
mkdir -p "$work"

example=/usr/share/doc/librdkafka-dev/examples/rdkafka_performance.c
if [ ! -f $example ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq librdkafka-dev >/dev/null
fi
if [ -f $example ]; then
    sed 's|"../src/rd.h"|"rd.h"|' $example >"$work/rdkafka_performance.c"
    gcc -O2 -o "$work/rdkafka_performance" -I chaos-tests/bench -I /usr/include/librdkafka "$work/rdkafka_performance.c" -lrdkafka -lz
    export RDKAFKA_PERFORMANCE="$PWD/$work/rdkafka_performance"
else
    echo "bench: librdkafka-dev is not installed: the rows that need its producer are left out" >&2
fi

cargo bench --locked -q -p kuorum-protocol --bench batch -- --quick --quiet
cargo bench --locked -q -p kuorum-storage --bench log -- --quick --quiet
make -s build
"$target/release/bench" "$work"
