"""A stream of acks=all records by librdkafka, every other setting its own default, until standard input ends; see Failover.java for what is
said and what is listened to. SETTINGS is "key=value …"."""
import os
import sys
import threading
import time

from confluent_kafka import Producer

TOPIC, FIRST, RATE = os.environ["TOPIC"], int(os.environ["FIRST"]), int(os.environ["RATE"])
CONFIG = {"bootstrap.servers": os.environ["KUORUM_BOOTSTRAP"], "acks": "all"}
CONFIG.update(pair.split("=", 1) for pair in os.environ.get("SETTINGS", "").split())
PATIENCE = 150
said = threading.Lock()


def wall():
    return time.time() * 1000


def say(line):
    with said:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def write(producer, number, kind):
    sent = wall()

    def ended(error, message):
        how = f'"error":"{error.name()}"' if error else f'"partition":{message.partition()},"offset":{message.offset()}'
        say(f'{{"kind":"{kind}","id":{number},"sent":{sent:.3f},"at":{wall():.3f},{how}}}')

    value = f'{{"id":{number},"from":"ID1","to":"ID2","amount":1,"currency":"IDR","reference":"librdkafka"}}'
    producer.produce(TOPIC, value, on_delivery=ended)


def fresh(number):
    producer = Producer(CONFIG)
    write(producer, number, "fresh")
    producer.flush(PATIENCE)


def listen():
    for line in sys.stdin:
        thread = threading.Thread(target=fresh, args=(int(line),))
        thread.start()
        others.append(thread)
    over.set()


over, others = threading.Event(), []
threading.Thread(target=listen).start()
stream, began, count = Producer(CONFIG), time.monotonic(), 0
while not over.is_set():
    while (left := began + count / RATE - time.monotonic()) > 0:
        stream.poll(left)
    write(stream, FIRST + count, "stream")
    count += 1
waiting = stream.flush(PATIENCE)
for thread in others:
    thread.join(PATIENCE)
sys.exit(f"{waiting} records never ended" if waiting else 0)
