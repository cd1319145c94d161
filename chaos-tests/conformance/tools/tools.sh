#!/usr/bin/env bash
# Kafka's own command line tools, as an operator types them. LIBS is the folder of their jars.
set -uo pipefail
: "${LIBS:?}" "${KUORUM_BOOTSTRAP:?}"
RF=${RF:-3}
passed=0 failed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT

tool() { timeout 60 java -cp "$LIBS/*" "$@"; }
topics() { tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$KUORUM_BOOTSTRAP" "$@"; }
configs() { tool kafka.admin.ConfigCommand --bootstrap-server "$KUORUM_BOOTSTRAP" "$@"; }

check() { # name, what the output must contain, command…
    local name=$1 wanted=$2
    shift 2
    if "$@" >"$out" 2>&1 && { [ -z "$wanted" ] || grep -qE -- "$wanted" "$out"; }; then
        passed=$((passed + 1)); echo "  ok    $name"
    else
        failed=$((failed + 1)); echo "  FAIL  $name: wanted /$wanted/ in:"; sed 's/^/        /' "$out"
    fi
}

for topic in telemetry-logs bank-transfers closed-segments; do
    topics --delete --if-exists --topic $topic >/dev/null 2>&1
done
check "kafka-topics --create" "Created topic telemetry-logs" topics --create --topic telemetry-logs --partitions 2 --replication-factor "$RF"
check "kafka-topics --create, with a configuration" "Created topic bank-transfers" topics --create --topic bank-transfers --partitions 1 --replication-factor "$RF" --config retention.ms=86400000
check "kafka-topics --list" "^bank-transfers$" topics --list
check "kafka-topics --describe" "Topic: bank-transfers.*PartitionCount: 1.*ReplicationFactor: $RF.*retention.ms=86400000" topics --describe --topic bank-transfers
check "kafka-topics --describe of the partitions" "Partition: 0.*Leader: [0-9]+.*Replicas: .*Isr: [0-9]" topics --describe --topic bank-transfers
check "kafka-topics --describe --under-replicated-partitions" "" topics --describe --under-replicated-partitions
# The three commands of the handbook on loss and availability, as written there.
check "kafka-configs --alter --add-config unclean=true" "Completed updating config for topic telemetry-logs" \
    configs --entity-type topics --entity-name telemetry-logs --alter --add-config unclean.leader.election.enable=true
check "kafka-configs --alter --add-config unclean=false" "Completed updating config for topic bank-transfers" \
    configs --entity-type topics --entity-name bank-transfers --alter --add-config unclean.leader.election.enable=false
check "kafka-configs --describe" "unclean.leader.election.enable=false.*DYNAMIC_TOPIC_CONFIG" configs --entity-type topics --entity-name bank-transfers --describe
check "kafka-configs --describe --all" "min.insync.replicas=" configs --entity-type topics --entity-name bank-transfers --describe --all
check "kafka-configs --alter --delete-config" "Completed updating config" configs --entity-type topics --entity-name telemetry-logs --alter --delete-config unclean.leader.election.enable

produce() { printf 'user_10|{"amount": 50000}\nuser_11|{"amount": 25000}\n' | tool org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$KUORUM_BOOTSTRAP" \
    --topic bank-transfers --property parse.key=true --property "key.separator=|" && echo produced; }
check "kafka-console-producer" "^produced$" produce
check "kafka-console-consumer --partition 0 --offset earliest" "user_10.*50000" tool org.apache.kafka.tools.consumer.ConsoleConsumer \
    --bootstrap-server "$KUORUM_BOOTSTRAP" --topic bank-transfers --partition 0 --offset earliest --max-messages 2 --timeout-ms 20000 --property print.key=true
check "kafka-get-offsets" "bank-transfers:0:2" tool org.apache.kafka.tools.GetOffsetShell --bootstrap-server "$KUORUM_BOOTSTRAP" --topic bank-transfers
check "kafka-producer-perf-test" "5000 records sent" tool org.apache.kafka.tools.ProducerPerformance --topic telemetry-logs --num-records 5000 \
    --record-size 100 --throughput -1 --producer-props "bootstrap.servers=$KUORUM_BOOTSTRAP" acks=all
check "kafka-leader-election --election-type preferred" "" tool org.apache.kafka.tools.LeaderElectionCommand --bootstrap-server "$KUORUM_BOOTSTRAP" --election-type preferred --all-topic-partitions
check "kafka-log-dirs --describe" "bank-transfers-0" tool org.apache.kafka.tools.LogDirsCommand --bootstrap-server "$KUORUM_BOOTSTRAP" --describe --topic-list bank-transfers
check "kafka-cluster cluster-id" "Cluster ID: " tool org.apache.kafka.tools.ClusterTool cluster-id --bootstrap-server "$KUORUM_BOOTSTRAP"
check "kafka-broker-api-versions" "Produce\(0\)" tool org.apache.kafka.tools.BrokerApiVersionsCommand --bootstrap-server "$KUORUM_BOOTSTRAP"
check "kafka-topics --alter --partitions" "" topics --alter --topic bank-transfers --partitions 3
check "kafka-topics --describe after it" "PartitionCount: 3" topics --describe --topic bank-transfers
delete_records() { local f; f=$(mktemp); printf '{"partitions":[{"topic":"telemetry-logs","partition":0,"offset":1}],"version":1}' >"$f"
    tool org.apache.kafka.tools.DeleteRecordsCommand --bootstrap-server "$KUORUM_BOOTSTRAP" --offset-json-file "$f"; local rc=$?; rm -f "$f"; return $rc; }
check "kafka-delete-records" "low_watermark: 1" delete_records
# A partition gets another order of replicas and one fewer, then all of them back, then a move is taken back that cannot end.
reassign() { local f; f=$(mktemp); printf '{"version":1,"partitions":[{"topic":"bank-transfers","partition":0,"replicas":[%s]}]}' "$1" >"$f"; shift
    tool org.apache.kafka.tools.reassign.ReassignPartitionsCommand --bootstrap-server "$KUORUM_BOOTSTRAP" --reassignment-json-file "$f" "$@"; local rc=$?; rm -f "$f"; return $rc; }
if [ "$RF" -ge 3 ]; then
    check "kafka-reassign-partitions --execute" "Successfully started partition reassignment for bank-transfers-0" reassign 3,1 --execute
    check "kafka-reassign-partitions --verify" "Reassignment of partition bank-transfers-0 is completed" reassign 3,1 --verify
    check "kafka-topics --describe after it" "Partition: 0.*Replicas: 3,1" topics --describe --topic bank-transfers
    check "kafka-reassign-partitions --execute with a throttle" "The inter-broker throttle limit was set" reassign 2,3,1 --execute --throttle 10000000
    moved() { for _ in $(seq 10); do reassign 2,3,1 --verify | grep "is completed" && return 0; done; return 1; }
    check "kafka-reassign-partitions --verify until it has moved" "is completed" moved
    check "kafka-reassign-partitions --list" "No partition reassignments found" tool org.apache.kafka.tools.reassign.ReassignPartitionsCommand --bootstrap-server "$KUORUM_BOOTSTRAP" --list
    check "kafka-reassign-partitions --cancel of nothing" "None of the specified partition reassignments are active" reassign 2,3,1 --cancel
fi
# What is on the disk: a segment that is still open and being written, and one that is closed.
check "kafka-topics --create with small segments" "Created topic" topics --create --topic closed-segments --partitions 1 --replication-factor "$RF" --config segment.bytes=1048576
check "kafka-producer-perf-test into small segments" "3000 records sent" tool org.apache.kafka.tools.ProducerPerformance --topic closed-segments --num-records 3000 \
    --record-size 1000 --throughput -1 --producer-props "bootstrap.servers=$KUORUM_BOOTSTRAP" acks=all
if [ -n "${DATA_DIRS:-}" ]; then
    for segment in $(ls $DATA_DIRS/bank-transfers-0/00000000000000000000.log 2>/dev/null | head -1); do
        check "kafka-dump-log of an open segment" "baseOffset: 0 lastOffset: .*isvalid: true" tool kafka.tools.DumpLogSegments --files "$segment"
        check "kafka-dump-log reads the records" "payload: .*50000" tool kafka.tools.DumpLogSegments --print-data-log --files "$segment"
    done
    closed=$(ls "$DATA_DIRS"/closed-segments-0/*.log 2>/dev/null | head -1)
    check "the segment has been closed" "." find "$DATA_DIRS/closed-segments-0" -name '*.log' -not -name '00000000000000000000.log'
    check "kafka-dump-log of a closed segment" "baseOffset: 0 lastOffset: .*isvalid: true" tool kafka.tools.DumpLogSegments --files "$closed"
    check "kafka-dump-log of its offset index" "offset: [1-9]" tool kafka.tools.DumpLogSegments --files "${closed%.log}.index"
    check "kafka-dump-log of its time index" "timestamp: [1-9]" tool kafka.tools.DumpLogSegments --files "${closed%.log}.timeindex"
fi
check "kafka-topics --delete" "" topics --delete --topic telemetry-logs
gone() { for _ in $(seq 20); do topics --list | grep -qx telemetry-logs || { echo gone; return 0; }; done; return 1; }
check "and it is gone" "^gone$" gone
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
