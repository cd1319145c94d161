"""A consumer that had read past an unclean election's cut is told, and is never given other records at the same offsets in silence.
The story is told to two clients at once: librdkafka here, the Java client in a process of its own. What was cut off is read by Kafka's
dump tool in the end. It needs a cluster it may hurt: CLUSTER is the command that kills and pauses brokers of the one it has."""
import json
import os
import re
import subprocess
import tempfile
import time

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from check import check, end, equal, transfer

BOOTSTRAP = os.environ["KUORUM_BOOTSTRAP"]
CLUSTER = os.environ["CLUSTER"]
JAVA = ["java", "-cp", os.environ["LIBS"] + "/*", os.environ["JAVA_READER"]]
DUMP = ["java", "-cp", os.environ["LIBS"] + "/*", "kafka.tools.DumpLogSegments"]
KUORUM = os.environ["KUORUM"]
TOPIC = f"cut-{int(time.time() * 1000)}"
PATIENCE = 60
SHARED, LOST, AFTER = 50, 50, 100


def cluster(action, broker):
    subprocess.run([CLUSTER, action, "broker", str(broker)], check=True, stdout=subprocess.DEVNULL)


def placement():
    """Who leads, and who is in sync. The controllers are asked, which this story leaves alone: librdkafka asks for metadata where it asked
    last, and goes on asking a broker that is paused. What only a leader that died could add is not missed (exit code 4)."""
    told = subprocess.run([KUORUM, "--output", "json", "topics", "describe", TOPIC], timeout=PATIENCE, stdout=subprocess.PIPE)
    assert told.returncode in (0, 4), f"kuorum topics describe ends with {told.returncode}"
    partition, = json.loads(told.stdout)["partitions"]
    return partition


def wait_until(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds(now := placement()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what}: leader {now['leader']}, in sync {now['isr']}"
        time.sleep(0.05)


def produce(first, count):
    failed = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "all", "linger.ms": 1})
    for i in range(first, first + count):
        producer.produce(TOPIC, transfer(i), partition=0,
                         on_delivery=lambda error, _: failed.append(error) if error else None)
    equal(producer.flush(PATIENCE), 0, "records still queued")
    equal(failed, [], "delivery errors")


class Here:
    """librdkafka, told to fail where there is nothing to read."""
    def __init__(self):
        self.read, self.error = [], None
        self.consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "cut", "auto.offset.reset": "error",
                                  "enable.auto.commit": False})
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read_until(self, done):
        deadline = time.monotonic() + PATIENCE
        while not done() and time.monotonic() < deadline:
            message = self.consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                self.error = message.error()
            else:
                self.read.append((message.offset(), message.value()))
        assert done(), f"waited {PATIENCE} s: {len(self.read)} records, error {self.error}"


def both_read(count):
    here.read_until(lambda: len(here.read) == count)
    equal(java.stdout.readline().strip(), "read", "what the Java client says")


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, 1, 2, config={
    "unclean.leader.election.enable": "true", "min.insync.replicas": "1"})])[TOPIC].result(30)
wait_until("both replicas in sync", lambda p: p["leader"] >= 0 and len(p["isr"]) == 2)
partition = placement()
leader = partition["leader"]
other, = (replica for replica in partition["replicas"] if replica != leader)
here = Here()
java = subprocess.Popen([*JAVA, TOPIC, str(SHARED), str(SHARED + LOST)], stdout=subprocess.PIPE, text=True)


@check("records that one replica lacks are read by both clients before the leader dies")
def _():
    produce(0, SHARED)
    both_read(SHARED)  # before the pause: a client that finds its way through the paused broker would wait for its own request timeout
    cluster("pause", other)
    wait_until("the leader alone in sync", lambda p: p["isr"] == [leader])
    produce(SHARED, LOST)
    both_read(SHARED + LOST)


@check("the topic's own choice elects the replica that is left")
def _():
    cluster("kill", leader)
    cluster("resume", other)
    wait_until("the other one leads", lambda p: p["leader"] == other)
    produce(1000, AFTER)


@check("librdkafka is told that its log was truncated")
def _():
    here.read_until(lambda: here.error is not None)
    # Where the histories part, or that there is nothing at this offset: both are answers, silence is none.
    assert here.error.code() in (KafkaError._LOG_TRUNCATION, KafkaError._AUTO_OFFSET_RESET), here.error
    equal(here.read, [(i, transfer(i)) for i in range(SHARED + LOST)], "what was read before the error")


@check("the Java client is told that its log was truncated")
def _():
    out, _ = java.communicate(timeout=PATIENCE)
    told, diverges = out.strip().split()
    equal(told, "LogTruncationException", "what the Java client says")
    equal(int(diverges), SHARED, "where the histories part")


@check("the old leader comes back with the new history")
def _():
    cluster("start", leader)
    wait_until("both replicas in sync", lambda p: len(p["isr"]) == 2)
    reader = Here()
    reader.read_until(lambda: len(reader.read) == SHARED + AFTER)
    expected = [transfer(i) for i in [*range(SHARED), *range(1000, 1000 + AFTER)]]
    equal(reader.read, list(enumerate(expected)), "the log from the beginning")
    reader.consumer.close()


def run(*words):
    return subprocess.run(words, check=True, timeout=PATIENCE, stdout=subprocess.PIPE, text=True).stdout


@check("Kafka's dump tool reads the export of what was cut off")
def _():
    item, = [item for item in json.loads(run(KUORUM, "--output", "json", "salvage", "list")) if item["topic"] == TOPIC]
    equal((item["first_offset"], item["end_offset"], item["records"]), (SHARED, SHARED + LOST, LOST), "the item")
    with tempfile.TemporaryDirectory() as folder:
        run(KUORUM, "salvage", "export", item["id"], "--to", folder)
        files = os.listdir(folder)
        equal(files, [f"{SHARED:020}.log"], "the export")
        out = run(*DUMP, "--print-data-log", "--files", os.path.join(folder, files[0]))
    assert "isvalid: true" in out and "isvalid: false" not in out, out
    read = [(int(offset), payload.encode()) for offset, payload in re.findall(r"\| offset: (\d+) .*payload: (.*)", out)]
    equal(read, [(i, transfer(i)) for i in range(SHARED, SHARED + LOST)], "the records")


here.consumer.close()
end()
