#!/usr/bin/env bash
# All scenarios again and again, each time with another seed, for MINUTES=60. Ends at the first that fails, and says how to see it again.
set -euo pipefail
cd "$(dirname "$0")/../.."
export MINUTES=${MINUTES:-60}
exec make -s chaos
