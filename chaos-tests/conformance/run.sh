#!/usr/bin/env bash
# Other people's Kafka clients against a real local cluster. Each comes from its own registry, into a folder that is not kept.
# CLIENTS="librdkafka kafka-python java tools franz-go kafkajs truncation" chooses some; KUORUM_BOOTSTRAP set beforehand uses that cluster
# instead. The last is a story that two of them share; it kills a broker, so it is told to a cluster of this script's own only.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(realpath -m "${CONFORMANCE_DIR:-$root/.conformance}")
clients=${CLIENTS:-librdkafka kafka-python java tools franz-go kafkajs truncation}
mkdir -p "$work"
export CLUSTER_DIR="$work/cluster" PORT_BASE=${CONFORMANCE_PORT_BASE:-19092} BIN_DIR
# Some clients run in folders of their own.
BIN_DIR=$(realpath -m "${BIN_DIR:-${CARGO_TARGET_DIR:-$root/target}/release}")
export CLUSTER="$root/deploy/cluster.sh"
cluster() { "$CLUSTER" "$@"; }

# shellcheck disable=SC2086 # a list of names
CONFORMANCE_DIR=$work "$here/install.sh" $clients || exit 1

if [ -z "${KUORUM_BOOTSTRAP:-}" ]; then
    trap 'cluster clean' EXIT
    cluster clean
    cluster up >/dev/null || exit 1
    eval "$(cluster env)"
    export DATA_DIRS="$work/cluster/broker-1/data"
else
    clients=${clients/truncation/}
fi
export KUORUM_BOOTSTRAP KUORUM_ADMIN LIBS="$work/jars" KUORUM="$BIN_DIR/kuorum"

passed=0 failed=0 broken=""
for client in $clients; do
    echo "== $client"
    log="$work/$client.out"
    case $client in
        librdkafka) (cd "$here/python" && "$work/python/bin/python" -B librdkafka.py) ;;
        kafka-python) (cd "$here/python" && "$work/python/bin/python" -B kafka_python.py) ;;
        java) java -cp "$work/jars/*" "$here/java/Conformance.java" ;;
        tools) "$here/tools/tools.sh" ;;
        franz-go) "$work/franz-go" ;;
        kafkajs) (cd "$work/node" && node conformance.js) ;;
        truncation) (cd "$here/python" && JAVA_READER="$here/java/Truncation.java" "$work/python/bin/python" -B truncation.py) ;;
    esac 2>&1 | tee "$log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -1)
    if [ -z "$line" ]; then broken+=" $client"; failed=$((failed + 1)); continue; fi
    passed=$((passed + ${line%% *})); rest=${line#*, }; failed=$((failed + ${rest%% *}))
    [ "${rest%% *}" = 0 ] || broken+=" $client"
done
[ -z "$broken" ] || echo "not conforming:$broken"
echo "conformance: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
