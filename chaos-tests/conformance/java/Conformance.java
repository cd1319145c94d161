import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/** The Java client: idempotent producer (its default) with every codec, consumer by assignment, admin. */
public class Conformance {
    interface Story { void run() throws Exception; }

    static final String BOOTSTRAP = System.getenv("KUORUM_BOOTSTRAP");
    static final short RF = Short.parseShort(System.getenv().getOrDefault("RF", "3"));
    static final String TOPIC = "java-" + System.currentTimeMillis();
    static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);
    static final int COUNT = 500;
    static int passed, failed, written;

    static void check(String name, Story story) {
        try {
            story.run();
            passed++;
            System.out.println("  ok    " + name);
        } catch (Throwable problem) {
            failed++;
            System.out.println("  FAIL  " + name + ": " + problem);
            problem.printStackTrace(System.out);
        }
    }

    static void equal(Object actual, Object expected, String what) {
        if (!actual.equals(expected)) throw new AssertionError(what + ": expected " + expected + ", got " + actual);
    }

    static String transfer(int i) {
        return "{\"id\":" + i + ",\"amount\":" + (i * 37L) % 100000 + "}";
    }

    static Properties properties(Object... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", BOOTSTRAP);
        for (int i = 0; i < pairs.length; i += 2) properties.put(pairs[i], pairs[i + 1]);
        return properties;
    }

    static KafkaProducer<String, String> producer(Object... pairs) {
        return new KafkaProducer<>(properties(pairs), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Object... pairs) {
        return new KafkaConsumer<>(properties(pairs), new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] args) throws Exception {
        Admin admin = Admin.create(properties());
        check("create a topic", () -> {
            CreateTopicsResult result = admin.createTopics(List.of(new NewTopic(TOPIC, 3, RF).configs(Map.of("retention.ms", "86400000"))));
            result.all().get(30, TimeUnit.SECONDS);
            equal(result.numPartitions(TOPIC).get(), 3, "partitions");
            equal(result.replicationFactor(TOPIC).get(), (int) RF, "replication factor");
        });
        check("describe the topic", () -> {
            TopicDescription topic = admin.describeTopics(List.of(TOPIC)).allTopicNames().get(30, TimeUnit.SECONDS).get(TOPIC);
            equal(topic.partitions().size(), 3, "partitions");
            for (TopicPartitionInfo partition : topic.partitions()) equal(partition.replicas().size(), (int) RF, "replicas");
        });
        check("describe the cluster", () -> {
            DescribeClusterResult cluster = admin.describeCluster();
            if (cluster.nodes().get(30, TimeUnit.SECONDS).size() < RF) throw new AssertionError(cluster.nodes().get());
            if (cluster.clusterId().get() == null || cluster.controller().get() == null) throw new AssertionError("no id or controller");
        });
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            check("produce idempotently with " + codec, () -> {
                try (KafkaProducer<String, String> producer = producer("compression.type", codec, "linger.ms", 5)) {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (int i = written; i < written + COUNT; i++)
                        sent.add(producer.send(new ProducerRecord<>(TOPIC, 0, "acc-" + i % 97, transfer(i))));
                    producer.flush();
                    for (int i = 0; i < COUNT; i++) equal(sent.get(i).get(30, TimeUnit.SECONDS).offset(), (long) written + i, "offset");
                }
                written += COUNT;
            });
        }
        check("the partition of a key", () -> {
            try (KafkaProducer<String, String> producer = producer()) {
                equal(producer.send(new ProducerRecord<>(TOPIC, "user_10", "x")).get(30, TimeUnit.SECONDS).partition(), 2, "partition of user_10 among 3");
            }
        });
        check("consume everything by assignment, in order and unharmed", () -> {
            try (KafkaConsumer<String, String> consumer = consumer("enable.auto.commit", false, "isolation.level", "read_committed")) {
                consumer.assign(List.of(PARTITION));
                consumer.seekToBeginning(List.of(PARTITION));
                int next = 0;
                long deadline = System.nanoTime() + 30_000_000_000L;
                while (next < written && System.nanoTime() < deadline)
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                        equal(record.offset(), (long) next, "offset");
                        equal(record.value(), transfer(next), "value");
                        next++;
                    }
                equal(next, written, "records read");
                equal(consumer.endOffsets(List.of(PARTITION)).get(PARTITION), (long) written, "end offset");
                equal(consumer.beginningOffsets(List.of(PARTITION)).get(PARTITION), 0L, "beginning offset");
                equal(consumer.offsetsForTimes(Map.of(PARTITION, 1L)).get(PARTITION).offset(), 0L, "offset by time");
            }
        });
        check("offsets: earliest, latest, of the largest timestamp", () -> {
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp())) {
                ListOffsetsResult.ListOffsetsResultInfo info = admin.listOffsets(Map.of(PARTITION, spec)).partitionResult(PARTITION).get(30, TimeUnit.SECONDS);
                if (info.offset() < 0) throw new AssertionError(spec + " has no offset");
            }
        });
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        check("alter and describe configurations", () -> {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry("unclean.leader.election.enable", "false"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all().get(30, TimeUnit.SECONDS);
            long deadline = System.nanoTime() + 10_000_000_000L;
            while (true) {
                Config config = admin.describeConfigs(List.of(resource)).all().get(30, TimeUnit.SECONDS).get(resource);
                if (config.get("unclean.leader.election.enable").source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG
                    && config.get("retention.ms").value().equals("604800000")) break;
                if (System.nanoTime() > deadline) throw new AssertionError(config);
            }
        });
        check("a configuration that does not exist is refused", () -> {
            try {
                admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("retention.mss", "1"), AlterConfigOp.OpType.SET))))
                    .all().get(30, TimeUnit.SECONDS);
            } catch (java.util.concurrent.ExecutionException refused) {
                equal(refused.getCause().getClass().getSimpleName(), "InvalidConfigurationException", "error");
                return;
            }
            throw new AssertionError("it was accepted");
        });
        check("describe the brokers' configurations", () -> {
            for (org.apache.kafka.common.Node node : admin.describeCluster().nodes().get()) {
                ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node.idString());
                if (admin.describeConfigs(List.of(broker)).all().get(30, TimeUnit.SECONDS).get(broker).entries().isEmpty()) throw new AssertionError("none");
            }
        });
        check("describe the log directories", () -> {
            List<Integer> ids = admin.describeCluster().nodes().get().stream().map(n -> n.id()).toList();
            Map<Integer, Map<String, LogDirDescription>> dirs = admin.describeLogDirs(ids).allDescriptions().get(30, TimeUnit.SECONDS);
            long copies = dirs.values().stream().flatMap(d -> d.values().stream()).filter(d -> d.replicaInfos().containsKey(PARTITION)).count();
            equal(copies, (long) RF, "copies of the partition");
        });
        check("preferred election is not needed", () -> {
            Map<TopicPartition, java.util.Optional<Throwable>> result =
                admin.electLeaders(org.apache.kafka.common.ElectionType.PREFERRED, Set.of(PARTITION)).partitions().get(30, TimeUnit.SECONDS);
            String error = result.get(PARTITION).map(e -> e.getClass().getSimpleName()).orElse("none");
            if (!error.equals("ElectionNotNeededException") && !error.equals("none")) throw new AssertionError(error);
        });
        check("add partitions, delete records", () -> {
            admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(5))).all().get(30, TimeUnit.SECONDS);
            equal(admin.deleteRecords(Map.of(PARTITION, RecordsToDelete.beforeOffset(100))).lowWatermarks().get(PARTITION).get(30, TimeUnit.SECONDS).lowWatermark(), 100L, "low watermark");
        });
        check("delete the topic", () -> {
            admin.deleteTopics(List.of(TOPIC)).all().get(30, TimeUnit.SECONDS);
            long deadline = System.nanoTime() + 15_000_000_000L;
            while (admin.listTopics().names().get(30, TimeUnit.SECONDS).contains(TOPIC))
                if (System.nanoTime() > deadline) throw new AssertionError("it is still there");
        });
        admin.close(Duration.ofSeconds(5));
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
