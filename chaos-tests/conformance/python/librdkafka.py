"""librdkafka, through confluent-kafka: produce with every codec, consume by assignment, administer."""
import os
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition, IsolationLevel
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions,
                                   NewTopic, OffsetSpec, ResourceType)

from check import check, end, equal, transfer

BOOTSTRAP = os.environ["KUORUM_BOOTSTRAP"]
RF = int(os.environ.get("RF", "3"))
TOPIC = f"librdkafka-{int(time.time() * 1000)}"
COUNT = 500
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})


def futures(result):
    return {key: future.result(30) for key, future in result.items()}


def wait_for_topic(name, partitions):
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        topic = admin.list_topics(timeout=10).topics.get(name)
        if topic and topic.error is None and len(topic.partitions) == partitions and all(
                p.leader >= 0 for p in topic.partitions.values()):
            return topic
        time.sleep(0.05)
    raise AssertionError(f"{name} has not appeared with {partitions} led partitions")


@check("create a topic and see it in metadata")
def _():
    futures(admin.create_topics([NewTopic(TOPIC, 3, RF, config={"retention.ms": "86400000"})]))
    topic = wait_for_topic(TOPIC, 3)
    for partition in topic.partitions.values():
        equal(len(partition.replicas), RF, "replicas")
        assert partition.leader in partition.isrs


@check("a topic that exists is refused")
def _():
    try:
        futures(admin.create_topics([NewTopic(TOPIC, 3, RF)]))
    except KafkaException as refused:
        equal(refused.args[0].name(), "TOPIC_ALREADY_EXISTS", "error")
    else:
        raise AssertionError("it was created twice")


def produce(config, first, count, partition=0):
    delivered = []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 5, **config})
    for i in range(first, first + count):
        producer.produce(TOPIC, transfer(i), key=f"acc-{i % 97}".encode(), partition=partition, headers={"source": b"teller"},
                         on_delivery=lambda error, message: delivered.append((error, message)))
        producer.poll(0)
    equal(producer.flush(60), 0, "records still queued")
    failed = [str(error) for error, _ in delivered if error is not None]
    assert not failed, failed[:3]
    offsets = [message.offset() for _, message in delivered]
    equal(offsets, sorted(offsets), "offsets in order of delivery")
    equal(len(offsets), count, "deliveries")
    return offsets


def consume(partition, offset, count, **config):
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "unused", "enable.auto.commit": False,
                         "auto.offset.reset": "error", "check.crcs": True, **config})
    consumer.assign([TopicPartition(TOPIC, partition, offset)])
    messages, deadline = [], time.monotonic() + 30
    while len(messages) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        messages.append(message)
    consumer.close()
    equal(len(messages), count, "records read")
    return messages


written = 0
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    @check(f"produce idempotently with {codec}, acks=all")
    def _():
        global written
        offsets = produce({"compression.type": codec, "enable.idempotence": True, "acks": "all"}, written, COUNT)
        equal(offsets[0], written, "first offset")
        written += COUNT


@check("produce with acks=1 and with acks=0")
def _():
    global written
    produce({"acks": "1"}, written, COUNT)
    written += COUNT
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "acks": "0"})
    for i in range(written, written + COUNT):
        producer.produce(TOPIC, transfer(i), key=f"acc-{i % 97}".encode(), partition=0, headers={"source": b"teller"})
    producer.flush(30)
    written += COUNT


@check("consume everything by assignment, in order and unharmed")
def _():
    messages = consume(0, OFFSET_BEGINNING, written)
    equal([m.offset() for m in messages], list(range(written)), "offsets")
    for i, message in enumerate(messages):
        equal(message.value(), transfer(i), f"value at {i}")
        equal(message.headers(), [("source", b"teller")], f"headers at {i}")


@check("consume from the middle of a batch, read_committed")
def _():
    messages = consume(0, 777, 100, **{"isolation.level": "read_committed"})
    equal([m.offset() for m in messages], list(range(777, 877)), "offsets")


@check("the partition of a key agrees with Java's (murmur2_random)")
def _():
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "partitioner": "murmur2_random"})
    seen = []
    producer.produce(TOPIC, b"x", key=b"user_10", on_delivery=lambda error, message: seen.append(message.partition()))
    producer.flush(30)
    equal(seen, [2], "partition of user_10 among 3")


@check("watermarks and offsets by time")
def _():
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "unused"})
    equal(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10), (0, written), "watermarks")
    [found] = consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], timeout=10)
    equal(found.offset, 0, "first offset after the year 1970")
    consumer.close()
    spec = {TopicPartition(TOPIC, 0): OffsetSpec.latest()}
    [latest] = futures(admin.list_offsets(spec, isolation_level=IsolationLevel.READ_COMMITTED)).values()
    equal(latest.offset, written, "latest")


@check("describe and alter a topic's configuration")
def _():
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    [before] = futures(admin.describe_configs([resource])).values()
    equal(before["retention.ms"].value, "86400000", "retention.ms")
    assert "min.insync.replicas" in before and "unclean.leader.election.enable" in before
    change = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[
        ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("unclean.leader.election.enable", "false", incremental_operation=AlterConfigOpType.SET)])
    futures(admin.incremental_alter_configs([change]))
    deadline = time.monotonic() + 10
    while futures(admin.describe_configs([resource])).popitem()[1]["retention.ms"].value != "3600000":
        assert time.monotonic() < deadline, "the change is not seen"


@check("add partitions")
def _():
    futures(admin.create_partitions([NewPartitions(TOPIC, 5)]))
    wait_for_topic(TOPIC, 5)


@check("delete records, and the log start moves")
def _():
    futures(admin.delete_records([TopicPartition(TOPIC, 0, 100)]))
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "unused"})
    equal(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)[0], 100, "log start")
    consumer.close()


@check("a record that is too large is refused")
def _():
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "message.max.bytes": 5_000_000})
    errors = []
    producer.produce(TOPIC, b"x" * 2_000_000, on_delivery=lambda error, _: errors.append(error and error.name()))
    producer.flush(30)
    equal(errors, ["MSG_SIZE_TOO_LARGE"], "error")


@check("delete the topic")
def _():
    futures(admin.delete_topics([TOPIC]))
    deadline = time.monotonic() + 15
    while TOPIC in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline, "the topic is still there"
        time.sleep(0.05)


end()
