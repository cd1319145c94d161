#!/usr/bin/env bash
# Kills and freezes each controller under a stream of acks=all writes, which may not pause for a second. Then kills the leader of a partition
# ROUNDS times (20) under such a stream, each time bringing it back; then all six processes at once, again under writes, three times, and starts
# them in three orders. Prints what was acknowledged, read, lost, moved and out of order after each, and the unclean elections, of which there may
# be none.
set -euo pipefail
cd "$(dirname "$0")/../.."
make -s build
CLUSTER_DIR=${CHAOS_DIR:-.cluster-chaos} PORT_BASE=${CHAOS_PORT_BASE:-29092} exec "${CARGO_TARGET_DIR:-target}/release/kill-a-broker" "${1:-20}"
