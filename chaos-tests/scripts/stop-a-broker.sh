#!/usr/bin/env bash
# Ends brokers in good order (SIGTERM), one after the other, ROUNDS times (3): each leads 60 partitions under 1,000 acks=all writes a second. No write
# may fail, none take longer than 300 ms, and the process must be gone within 10 s.
set -euo pipefail
cd "$(dirname "$0")/../.."
make -s build
CLUSTER_DIR=${CHAOS_DIR:-.cluster-handover} PORT_BASE=${CHAOS_PORT_BASE:-30092} exec "${CARGO_TARGET_DIR:-target}/release/handover" "${1:-3}"
