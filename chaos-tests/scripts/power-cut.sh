#!/usr/bin/env bash
# The night of the power cut: path A (availability first, then salvage), path B (nothing is lost), and with two controllers gone too.
# Usage: power-cut.sh [a|b|controllers], with the story's own figures: 150,000 and 50,000 records. SCALE=10 divides them, SEED= decides what is torn.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-all} in
    a) scenarios=power-cut-path-a ;;
    b) scenarios=power-cut-path-b ;;
    controllers) scenarios=power-cut-two-controllers ;;
    all) scenarios="power-cut-path-a power-cut-path-b power-cut-two-controllers" ;;
    *) echo "usage: power-cut.sh [a|b|controllers]" >&2; exit 2 ;;
esac
exec make -s chaos SCENARIO="$scenarios"
