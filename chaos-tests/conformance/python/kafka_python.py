"""kafka-python: produce with every codec it has, consume by assignment, administer."""
import os
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

from check import check, end, equal, transfer

BOOTSTRAP = os.environ["KUORUM_BOOTSTRAP"].split(",")
RF = int(os.environ.get("RF", "3"))
TOPIC = f"kafka-python-{int(time.time() * 1000)}"
COUNT = 300
admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)


@check("create a topic")
def _():
    admin.create_topics([NewTopic(TOPIC, 3, RF, topic_configs={"retention.ms": "86400000"})])
    deadline = time.monotonic() + 15
    while TOPIC not in admin.list_topics():
        assert time.monotonic() < deadline, "the topic has not appeared"


written = 0
for codec in (None, "gzip"):
    @check(f"produce with {codec}, acks=all")
    def _():
        global written
        producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, acks="all", compression_type=codec)
        sent = [producer.send(TOPIC, transfer(i), key=b"k", partition=1) for i in range(written, written + COUNT)]
        producer.flush(60)
        equal([f.get(10).offset for f in sent], list(range(written, written + COUNT)), "offsets")
        producer.close()
        written += COUNT


@check("consume by assignment, in order and unharmed")
def _():
    consumer = KafkaConsumer(bootstrap_servers=BOOTSTRAP, enable_auto_commit=False, consumer_timeout_ms=20000)
    partition = TopicPartition(TOPIC, 1)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values = []
    for record in consumer:
        values.append(record.value)
        if len(values) == written:
            break
    equal(values, [transfer(i) for i in range(written)], "values")
    equal(consumer.end_offsets([partition])[partition], written, "end offset")
    equal(consumer.beginning_offsets([partition])[partition], 0, "beginning offset")
    equal(consumer.offsets_for_times({partition: 1})[partition].offset, 0, "offset by time")
    consumer.close()


@check("the partition of a key agrees with Java's")
def _():
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP)
    equal(producer.send(TOPIC, b"x", key=b"user_10").get(20).partition, 2, "partition of user_10 among 3")
    producer.close()


@check("describe configurations")
def _():
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC)])
    assert "retention.ms" in repr(answer), answer


@check("add partitions")
def _():
    admin.create_partitions({TOPIC: NewPartitions(5)})


@check("describe the cluster")
def _():
    brokers = admin.describe_cluster()["brokers"]
    assert len(brokers) >= RF, brokers


@check("delete the topic")
def _():
    admin.delete_topics([TOPIC])
    deadline = time.monotonic() + 15
    while TOPIC in admin.list_topics():
        assert time.monotonic() < deadline, "the topic is still there"


end()
