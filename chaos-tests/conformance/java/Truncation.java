import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Reads a partition, says "read" at each of two given offsets, and goes on reading. Ends with the name of the exception that stops it, and with the offset
 * at which the histories part if it is told.
 */
public class Truncation {
    public static void main(String[] arguments) {
        TopicPartition partition = new TopicPartition(arguments[0], 0);
        long first = Long.parseLong(arguments[1]), until = Long.parseLong(arguments[2]), said = 0;
        Map<String, Object> config = Map.of("bootstrap.servers", System.getenv("KUORUM_BOOTSTRAP"), "auto.offset.reset", "none");
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            for (long deadline = System.nanoTime() + 120_000_000_000L; System.nanoTime() < deadline; ) {
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.offset() >= until) {
                        System.out.println("silence " + record.offset());
                        return;
                    }
                }
                long position = consumer.position(partition);
                if (position > said && (position == first || position == until)) {
                    System.out.println("read");
                    said = position;
                }
            }
            System.out.println("nothing -1");
        } catch (LogTruncationException told) {
            System.out.println("LogTruncationException " + told.divergentOffsets().get(partition).offset());
        } catch (RuntimeException other) {
            System.out.println(other.getClass().getSimpleName() + " -1");
        }
    }
}
