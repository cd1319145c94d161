#!/usr/bin/env bash
# Fetches other people's Kafka clients, each from its own registry and in the version its list names, into CONFORMANCE_DIR, which is not
# kept: install.sh librdkafka java … What is there already stays as it is, and needs no network.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(realpath -m "${CONFORMANCE_DIR:-$here/../../.conformance}")
mkdir -p "$work" || exit 1

need() { command -v "$1" >/dev/null || { echo "conformance: '$1' is not installed; it is needed for $2" >&2; exit 1; }; }
# A folder that is half filled would be taken for a whole one the next time.
python() {
    need python3 "librdkafka and kafka-python"
    [ -x "$work/python/bin/python" ] || python3 -m venv "$work/python" || { rm -rf "$work/python"; exit 1; }
    "$work/python/bin/pip" install -q --disable-pip-version-check -r "$here/python/requirements.txt" || exit 1
}
java() {
    need java "the Java client and Kafka's tools"
    need mvn "the Java client and Kafka's tools"
    [ -d "$work/jars" ] || mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars" || { rm -rf "$work/jars"; exit 1; }
}
for client in "$@"; do
    case $client in
        librdkafka | kafka-python) python ;;
        java | tools) java ;;
        truncation) python; java ;;
        franz-go) need go franz-go; (cd "$here/go" && go build -o "$work/franz-go" .) || exit 1 ;;
        kafkajs) need npm kafkajs; mkdir -p "$work/node"; cp "$here"/node/*.js* "$work/node/"
                 [ -d "$work/node/node_modules" ] || (cd "$work/node" && npm install --silent --no-package-lock --no-fund --no-audit) || exit 1 ;;
        *) echo "conformance: no client is called '$client'" >&2; exit 1 ;;
    esac
done
