// Does with Kafka's own client for Java what `tests/interop/gateway/clients.py` asks of each client.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class WithJava {
    static final ObjectMapper JSON = new ObjectMapper();
    static JsonNode plan;

    interface End {
        void with(KafkaConsumer<String, String> consumer, Map<TopicPartition, OffsetAndMetadata> ends);
    }

    static List<String> texts(JsonNode values) {
        List<String> found = new ArrayList<>();
        values.forEach(each -> found.add(each.asText()));
        return found;
    }

    static Properties known(String mechanism, String password) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        Properties settings = new Properties();
        settings.put("bootstrap.servers", plan.get("address").asText());
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", mechanism);
        settings.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username=\""
            + plan.get("user").asText() + "\" password=\"" + password + "\";");
        return settings;
    }

    static Properties known(String... more) {
        Properties settings = known(plan.get("mechanisms").get(0).asText(), plan.get("password").asText());
        for (int i = 0; i < more.length; i += 2) settings.put(more[i], more[i + 1]);
        return settings;
    }

    static boolean isKnown(String mechanism, String password) throws Exception {
        try (Admin admin = Admin.create(known(mechanism, password))) {
            admin.listTopics().names().get();
            return true;
        } catch (java.util.concurrent.ExecutionException error) {
            return false;
        }
    }

    static void create(Admin admin, String... topics) throws Exception {
        for (String topic : topics) admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
    }

    static KafkaProducer<String, String> producer(String... more) {
        return new KafkaProducer<>(known(more), new StringSerializer(), new StringSerializer());
    }

    static void produce(String topic, List<String> values, String codec) throws Exception {
        try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
            for (int i = 0; i < values.size(); i++) producer.send(new ProducerRecord<>(topic, i % 2, null, values.get(i)));
        }
    }

    static List<String> read(String topic, int count, String protocol, End end) {
        Properties settings = known("group.id", topic, "auto.offset.reset", "earliest", "enable.auto.commit", "false",
            "isolation.level", "read_committed", "group.protocol", protocol);
        List<String> found = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        long endMs = System.currentTimeMillis() + 1000 * plan.get("wait_s").asLong();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (found.size() < count && System.currentTimeMillis() < endMs)
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> {
                    found.add(record.value());
                    TopicPartition partition = new TopicPartition(topic, record.partition());
                    ends.put(partition, new OffsetAndMetadata(record.offset() + 1));
                });
            end.with(consumer, ends);
        }
        Collections.sort(found);
        return found;
    }

    static Object codecs(Admin admin) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<String, JsonNode> codec : plan.get("codecs").properties()) {
            String topic = plan.get("topic").asText() + "-" + codec.getKey();
            create(admin, topic);
            produce(topic, texts(codec.getValue()), codec.getKey());
            found.put(codec.getKey(), read(topic, codec.getValue().size(), "classic", (consumer, ends) -> { }));
        }
        return found;
    }

    static Object group(Admin admin, String protocol) throws Exception {
        String topic = plan.get("topic").asText() + "-group-" + protocol;
        create(admin, topic);
        List<Object> found = new ArrayList<>();
        for (JsonNode values : plan.get("group")) {
            produce(topic, texts(values), "none");
            found.add(read(topic, values.size(), protocol, (consumer, ends) -> consumer.commitSync()));
        }
        return found;
    }

    static Object transaction(Admin admin) throws Exception {
        String source = plan.get("topic").asText() + "-source", target = plan.get("topic").asText() + "-transaction";
        create(admin, source, target);
        produce(source, texts(plan.get("committed")), "none");
        try (KafkaProducer<String, String> producer = producer("transactional.id", target)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (String value : texts(plan.get("aborted"))) producer.send(new ProducerRecord<>(target, value));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            read(source, plan.get("committed").size(), "classic", (consumer, ends) -> {
                for (String value : texts(plan.get("committed"))) producer.send(new ProducerRecord<>(target, value));
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                producer.commitTransaction();
            });
        }
        return read(target, plan.get("committed").size(), "classic", (consumer, ends) -> { });
    }

    static Object admin(Admin admin) throws Exception {
        String topic = plan.get("topic").asText() + "-admin";
        create(admin, topic);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        var set = new AlterConfigOp(new ConfigEntry("retention.ms", "86400000"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        Map<String, Object> found = new TreeMap<>();
        found.put("partitions", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        found.put("retention.ms",
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value());
        admin.deleteTopics(List.of(topic)).all().get();
        found.put("is_deleted", !admin.listTopics().names().get().contains(topic));
        return found;
    }

    public static void main(String[] words) throws Exception {
        plan = JSON.readTree(words[0]);
        Map<String, Object> done = new TreeMap<>();
        Properties version = new Properties();
        version.load(WithJava.class.getResourceAsStream("/kafka/kafka-version.properties"));
        done.put("version", version.getProperty("version"));
        try (Admin admin = Admin.create(known())) {
            for (String part : texts(plan.get("parts")))
                done.put(part, switch (part) {
                    case "codecs" -> codecs(admin);
                    case "group" -> group(admin, "classic");
                    case "newer_group" -> group(admin, "consumer");
                    case "transaction" -> transaction(admin);
                    default -> admin(admin);
                });
        }
        List<String> logins = new ArrayList<>();
        for (String each : texts(plan.get("mechanisms"))) if (isKnown(each, plan.get("password").asText())) logins.add(each);
        done.put("logins", logins);
        done.put("is_refused", !isKnown(plan.get("mechanisms").get(0).asText(), "wrong"));
        System.out.println(JSON.writeValueAsString(done));
    }
}
