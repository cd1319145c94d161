#!/usr/bin/env bash
# Checks the arrows between the crates, and that nothing impure leaks into the pure ones. A crate that is not listed may not exist.
set -euo pipefail
cd "$(dirname "$0")/.."

# crate: the workspace crates it may depend on
allowed="
kuorum-protocol:
kuorum-transport: kuorum-protocol
kuorum-storage: kuorum-protocol
kuorum-metadata: kuorum-protocol
kuorum-admin-api:
kuorum-replication: kuorum-protocol kuorum-metadata
kuorum-client: kuorum-protocol kuorum-transport
kuorum-cli: kuorum-client kuorum-admin-api kuorum-protocol kuorum-storage kuorum-metadata
kuorum-controller: kuorum-protocol kuorum-transport kuorum-storage kuorum-metadata kuorum-admin-api
kuorum-broker: kuorum-protocol kuorum-transport kuorum-storage kuorum-metadata kuorum-replication
kuorum-chaos-tests: *
kuorum-shell-tests: *
"
# Nothing below may reach these crates at all, however indirectly.
pure="kuorum-protocol kuorum-metadata kuorum-admin-api kuorum-replication"
impure="tokio axum reqwest openraft rustix parking_lot"

failed=0
complain() { echo "layers: $*" >&2; failed=1; }

for crate in $(cargo metadata --locked --no-deps --format-version 1 | grep -o '"name":"kuorum-[a-z-]*","version"' | cut -d'"' -f4 | sort -u); do
    row=$(grep "^$crate:" <<<"$allowed") || { complain "$crate has no row here: decide which crates it may know"; continue; }
    may=${row#*:}
    [[ $may == *'*'* ]] && continue
    for dep in $(cargo tree --locked -q -p "$crate" --depth 1 -e normal --prefix none | awk 'NR>1{print $1}' | grep '^kuorum-' | sort -u); do
        [[ " $may " == *" $dep "* ]] || complain "$crate depends on $dep; it may only know:$may"
    done
done
for crate in $pure; do
    tree=$(cargo tree --locked -q -p "$crate" -e normal --prefix none | awk '{print $1}' | sort -u)
    for dep in $impure; do
        grep -qx "$dep" <<<"$tree" && complain "$crate is pure and must not reach $dep"
    done
done
[ $failed -eq 0 ] && echo "layers: every arrow is allowed"
exit $failed
