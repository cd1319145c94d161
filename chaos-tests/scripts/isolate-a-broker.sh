#!/usr/bin/env bash
# Cuts the host of a partition's leader off from the other hosts: both ways, then one way, then the other. Needs network namespaces (root).
# The report is .chaos-report/isolate-the-leader.html.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec make -s chaos SCENARIO=isolate-the-leader
