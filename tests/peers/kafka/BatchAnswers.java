import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What Apache Kafka says to a batch that a client produces: the checks of a Produce request, then an append to a real log.
 *
 * Standard input: a line for each batch, "KEY=VALUE,... HEX": topic settings (or "-") and the records field. Standard output: a line
 * for each, the name of the error (NONE: taken). Each set of settings has one log; the time stands still at the first argument.
 */
public class BatchAnswers {
    static final short PRODUCE_VERSION = 12;

    record StandingStill(long now) implements Time {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1_000_000; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    }

    public static void main(String[] arguments) throws Exception {
        Time time = new StandingStill(Long.parseLong(arguments[0]));
        Map<String, UnifiedLog> logs = new HashMap<>();
        File root = Files.createTempDirectory("batch-answers").toFile();
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            StringBuilder output = new StringBuilder();
            for (String line; (line = input.readLine()) != null; ) {
                String[] parts = line.split(" ", -1);
                if (!logs.containsKey(parts[0])) logs.put(parts[0], open(root, parts[0], logs.size(), scheduler, time));
                output.append(answer(logs.get(parts[0]), HexFormat.of().parseHex(parts[1]))).append('\n');
            }
            System.out.print(output);
            System.out.flush();
        } finally {
            scheduler.shutdown();
            Utils.delete(root);
        }
        System.exit(0);
    }

    static UnifiedLog open(File root, String settings, int number, KafkaScheduler scheduler, Time time) throws Exception {
        Map<String, String> config = new HashMap<>();
        if (!settings.equals("-"))
            for (String each : settings.split(",")) config.put(each.split("=")[0], each.split("=")[1]);
        File directory = new File(root, "topic-" + number);
        if (!directory.mkdir()) throw new IllegalStateException();
        return UnifiedLog.create(directory, new LogConfig(config), 0L, 0L, scheduler, new BrokerTopicStats(), time, 300_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1), true, Optional.empty(),
            new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    static String answer(UnifiedLog log, byte[] data) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
            ProduceRequest.validateRecords(PRODUCE_VERSION, records);
            log.appendAsLeader(records, 0, AppendOrigin.CLIENT, RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 0);
            return "NONE";
        } catch (RecordValidationException error) {
            return Errors.forException(error.invalidException()).name();
        } catch (Throwable error) {
            return Errors.forException(error).name();
        }
    }
}
