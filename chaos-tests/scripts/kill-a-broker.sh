#!/usr/bin/env bash
# Kills the leader of a partition ROUNDS times (20) under a stream of acks=all writes, each time bringing it back; then kills all six processes
# at once and starts them in three orders. Prints what was acknowledged, read, lost, moved and out of order after each.
set -euo pipefail
cd "$(dirname "$0")/../.."
make -s build
CLUSTER_DIR=${CHAOS_DIR:-.cluster-chaos} PORT_BASE=${CHAOS_PORT_BASE:-29092} exec "${CARGO_TARGET_DIR:-target}/release/kill-a-broker" "${1:-20}"
