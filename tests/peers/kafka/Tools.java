import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.VerifiableConsumer;

/**
 * Kafka's command line tools, many in one JVM: a start of one each would take more time than what they do.
 *
 * Standard input: a JSON object a line, {"run": CLASS, "words": [...]} answered when it has ended, {"start": CLASS, "words": [...]} at
 * once, {"said": N} with what the Nth that was started has printed so far, {"stop": N} as Ctrl-C does, answered when it has ended.
 * Standard output: an object a line, {"out": TEXT, "err": TEXT, "code": EXIT CODE, "number": N}.
 */
public class Tools {
    static final InheritableThreadLocal<Tool> current = new InheritableThreadLocal<>();

    /** Thrown where a tool would end its process. */
    static class Ended extends Error {
        Ended() { super(null, null, false, false); }
    }

    static class Tool extends Thread {
        final String main;
        final String[] words;
        final ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        volatile Integer code;

        Tool(String main, String[] words) {
            this.main = main;
            this.words = words;
        }

        @Override public void run() {
            current.set(this);
            try {
                call();
            } catch (InvocationTargetException error) {
                if (!(error.getCause() instanceof Ended)) error.getCause().printStackTrace();
            } catch (Ended error) {
                // as it wished
            } catch (Throwable error) {
                error.printStackTrace();
            }
            if (code == null) code = 0;
        }

        void call() throws Exception {
            Class<?> type = Class.forName(main);
            if (type == VerifiableConsumer.class) { // its end is a hook of the JVM itself
                Method parser = type.getDeclaredMethod("argParser");
                parser.setAccessible(true);
                VerifiableConsumer consumer = VerifiableConsumer.createFromArgs(
                    (net.sourceforge.argparse4j.inf.ArgumentParser) parser.invoke(null), words);
                hooks.add(consumer::close);
                consumer.run();
                return;
            }
            if (main.endsWith(".ConsoleConsumer")) { // it counts in a static variable
                Field count = type.getDeclaredField("messageCount");
                count.setAccessible(true);
                count.setInt(null, 0);
            }
            type.getMethod("main", String[].class).invoke(null, (Object) words);
        }

        void end() throws InterruptedException {
            current.set(this);
            for (Runnable hook : new ArrayList<>(hooks)) hook.run();
            current.remove();
            join();
        }
    }

    /** Goes to the tool whose thread writes, or whose thread started that thread. */
    static PrintStream stream(PrintStream elsewhere, boolean isError) {
        return new PrintStream(new OutputStream() {
            OutputStream target() {
                Tool tool = current.get();
                return tool == null ? elsewhere : isError ? tool.err : tool.out;
            }
            @Override public void write(int b) throws java.io.IOException { target().write(b); }
            @Override public void write(byte[] bytes, int from, int count) throws java.io.IOException { target().write(bytes, from, count); }
        }, true);
    }

    static void exit(int code, String message) {
        Tool tool = current.get();
        if (tool == null) Runtime.getRuntime().halt(code);
        if (message != null) tool.err.writeBytes((message + "\n").getBytes());
        if (tool.code == null) tool.code = code;
        throw new Ended();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(stream(System.err, false));
        System.setErr(stream(System.err, true));
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> current.get().hooks.add(hook));
        ObjectMapper json = new ObjectMapper();
        List<Tool> started = new ArrayList<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            JsonNode asked = json.readTree(line);
            Tool tool;
            if (asked.has("run") || asked.has("start")) {
                List<String> words = new ArrayList<>();
                asked.get("words").forEach(word -> words.add(word.asText()));
                tool = new Tool(asked.get(asked.has("run") ? "run" : "start").asText(), words.toArray(new String[0]));
                tool.start();
                if (asked.has("run")) tool.join();
                else started.add(tool);
            } else {
                tool = started.get(asked.get(asked.has("said") ? "said" : "stop").asInt());
                if (asked.has("stop")) tool.end();
            }
            Map<String, Object> told = new HashMap<>();
            told.put("out", tool.out.toString());
            told.put("err", tool.err.toString());
            told.put("code", tool.code);
            told.put("number", started.size() - 1);
            answers.println(json.writeValueAsString(told));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
