import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A stream of acks=all records by the Java client, every other setting its own default, until standard input ends. Says one line of JSON for
 * every record that has ended, with the wall clock's milliseconds. A number on standard input is one more record, sent by a producer that is
 * made for it.
 */
public class Failover {
    static final String TOPIC = System.getenv("TOPIC");

    static double wall() {
        var now = java.time.Instant.now();
        return now.getEpochSecond() * 1e3 + now.getNano() / 1e6;
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static KafkaProducer<String, String> producer() {
        var config = new HashMap<String, Object>(Map.of("bootstrap.servers", System.getenv("KUORUM_BOOTSTRAP"), "acks", "all"));
        for (String pair : System.getenv().getOrDefault("SETTINGS", "").split(" ")) {
            if (!pair.isEmpty()) config.put(pair.split("=", 2)[0], pair.split("=", 2)[1]);
        }
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static void write(Producer<String, String> producer, long number, String kind) {
        double sent = wall();
        String value = "{\"id\":" + number + ",\"from\":\"ID1\",\"to\":\"ID2\",\"amount\":1,\"currency\":\"IDR\",\"reference\":\"java\"}";
        producer.send(new ProducerRecord<>(TOPIC, value), (at, problem) -> say(String.format(Locale.ROOT,
            "{\"kind\":\"%s\",\"id\":%d,\"sent\":%.3f,\"at\":%.3f,%s}", kind, number, sent, wall(), problem == null
                ? "\"partition\":" + at.partition() + ",\"offset\":" + at.offset()
                : "\"error\":\"" + problem.getClass().getSimpleName() + "\"")));
    }

    public static void main(String[] arguments) throws Exception {
        long first = Long.parseLong(System.getenv("FIRST"));
        long between = 1_000_000_000L / Long.parseLong(System.getenv("RATE"));
        var others = Collections.synchronizedList(new ArrayList<Thread>());
        Thread listener = new Thread(() -> {
            for (var lines = new Scanner(System.in); lines.hasNextLong(); ) {
                long number = lines.nextLong();
                Thread other = new Thread(() -> {
                    try (var producer = producer()) { write(producer, number, "fresh"); }
                });
                others.add(other);
                other.start();
            }
        });
        listener.start();
        try (var stream = producer()) {
            long began = System.nanoTime();
            for (long count = 0; listener.isAlive(); count++) {
                for (long left; (left = began + count * between - System.nanoTime()) > 0; ) LockSupport.parkNanos(left);
                write(stream, first + count, "stream");
            }
        }
        for (Thread other : others) other.join(TimeUnit.SECONDS.toMillis(150));
    }
}
