import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Consumes, produces and commits in one transaction, as a member of a group: each record of the source once in the target, behind the number
 * of the attempt that wrote it. What an attempt writes, and how it ended, it notes in a diary before anybody can see it.
 *
 * BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL-ID DIARY
 */
public class Copier {
    static final int ABORTED = 2, EVERY = 6; // of the attempts of a process: the second, and each sixth after it
    static final int RETRIES = 5;

    final String source, target;
    final KafkaProducer<byte[], byte[]> producer;
    final KafkaConsumer<byte[], byte[]> consumer;
    final FileOutputStream diary;
    final long first = ProcessHandle.current().pid() * 100_000;
    long attempt = first;

    Copier(String[] words) throws IOException {
        source = words[1];
        target = words[2];
        diary = new FileOutputStream(words[5], true);
        Map<String, Object> of = new HashMap<>(Map.of("bootstrap.servers", words[0], "transactional.id", words[4]));
        of.putAll(Map.of("transaction.timeout.ms", 20_000, "delivery.timeout.ms", 20_000, "request.timeout.ms", 10_000, "linger.ms", 1));
        producer = new KafkaProducer<>(of, new ByteArraySerializer(), new ByteArraySerializer());
        of = new HashMap<>(Map.of("bootstrap.servers", words[0], "group.id", words[3], "auto.offset.reset", "earliest"));
        of.putAll(Map.of("enable.auto.commit", false, "isolation.level", "read_committed", "max.poll.records", 50));
        of.putAll(Map.of("session.timeout.ms", 3_000, "heartbeat.interval.ms", 300, "fetch.max.wait.ms", 50));
        consumer = new KafkaConsumer<>(of, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] words) throws Exception {
        Copier copier = new Copier(words);
        try {
            copier.run();
        } catch (KafkaException error) { // this producer can do nothing more; another process takes its place
            copier.note("gave-up", -1, -1);
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    void run() throws IOException {
        insist(producer::initTransactions);
        consumer.subscribe(List.of(source));
        while (true) {
            List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>();
            consumer.poll(Duration.ofMillis(100)).forEach(batch::add);
            if (!batch.isEmpty()) copy(batch);
        }
    }

    void copy(List<ConsumerRecord<byte[], byte[]>> batch) throws IOException {
        attempt++;
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        Map<TopicPartition, Long> begins = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> each : batch) {
            TopicPartition place = new TopicPartition(source, each.partition());
            begins.putIfAbsent(place, each.offset());
            ends.put(place, new OffsetAndMetadata(each.offset() + 1));
            note("wrote", each.partition(), each.offset());
        }
        producer.beginTransaction();
        boolean asked = false;
        try {
            for (ConsumerRecord<byte[], byte[]> each : batch) {
                byte[] value = (new String(each.value(), StandardCharsets.UTF_8) + " " + attempt).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(target, each.partition(), null, value));
            }
            producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
            if ((attempt - first) % EVERY == ABORTED) {
                abort(begins);
                return;
            }
            asked = true;
            insist(producer::commitTransaction);
        } catch (KafkaException error) {
            if (asked && error instanceof TimeoutException) throw error; // nobody knows how it ends
            abort(begins); // throws where it is not this producer's any more
            return;
        }
        note("committed", -1, -1);
    }

    void abort(Map<TopicPartition, Long> begins) throws IOException {
        insist(producer::abortTransaction);
        note("aborted", -1, -1);
        Collection<TopicPartition> mine = consumer.assignment(); // others are somebody else's by now
        begins.forEach((place, offset) -> { if (mine.contains(place)) consumer.seek(place, offset); });
    }

    /** As clients are to: again, while it only took long. */
    static void insist(Runnable call) {
        for (int tried = 1; ; tried++) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (tried == RETRIES) throw error;
            }
        }
    }

    /** One write a line, so a line is there or not; nanoTime is the clock that all processes of the machine share. */
    void note(String what, int partition, long offset) throws IOException {
        long value = offset < 0 && what.equals("gave-up") ? -1 : attempt;
        diary.write((System.nanoTime() + " " + what + " " + partition + " " + offset + " " + value + "\n").getBytes(StandardCharsets.US_ASCII));
    }
}
