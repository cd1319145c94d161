#!/usr/bin/env bash
# Freezes the leader of a partition until another one leads, writes to that one, and thaws the first: it must acknowledge nothing it should not.
# The report is .chaos-report/pause-a-zombie.html.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec make -s chaos SCENARIO=pause-a-zombie
