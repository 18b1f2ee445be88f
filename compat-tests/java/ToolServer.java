import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command line tools, many in one JVM and several at a time, since starting a JVM costs more than most of
 * them do. A line of standard input is a call: id, main class, standard input, arguments, separated by tabs, all but
 * the id and the class in base64 (an empty standard input is "-"). A line of standard output is its end: id, exit
 * status, standard output, standard error.
 *
 * <p>A tool's threads are told by an inheritable thread-local: System.out, System.err and System.in find the call
 * they belong to by it, and Exit.exit ends the call instead of the JVM.
 */
public final class ToolServer {
    /** Thrown by Exit.exit; no Exception, for tools catch those. */
    private static final class ToolExit extends Error {
        ToolExit() {
            super("exit", null, false, false);
        }
    }

    /** One run of a tool. */
    private static final class Call {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final List<Runnable> hooks = new ArrayList<>();
        final InputStream in;
        Integer status;

        Call(byte[] in) {
            this.in = new ByteArrayInputStream(in);
        }

        /** The first exit counts: a tool that catches the error of the first one exits again. */
        synchronized void exit(int code) {
            if (status == null) status = code;
            throw new ToolExit();
        }

        synchronized void write(ByteArrayOutputStream to, byte[] b, int off, int len) {
            if (status == null) to.write(b, off, len);
        }
    }

    private static final InheritableThreadLocal<Call> CURRENT = new InheritableThreadLocal<>();

    /** Writes to the call of the thread, or to the JVM's own stream when it belongs to none. */
    private static PrintStream split(PrintStream own, boolean err) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int b) {
                write(new byte[] {(byte) b}, 0, 1);
            }

            @Override
            public void write(byte[] b, int off, int len) {
                Call c = CURRENT.get();
                if (c == null) own.write(b, off, len);
                else c.write(err ? c.err : c.out, b, off, len);
            }
        }, true, StandardCharsets.UTF_8);
    }

    private static InputStream splitInput() {
        return new InputStream() {
            @Override
            public int read() throws java.io.IOException {
                Call c = CURRENT.get();
                return c == null ? -1 : c.in.read();
            }

            @Override
            public int read(byte[] b, int off, int len) throws java.io.IOException {
                Call c = CURRENT.get();
                return c == null ? -1 : c.in.read(b, off, len);
            }

            @Override
            public int available() throws java.io.IOException {
                Call c = CURRENT.get();
                return c == null ? 0 : c.in.available();
            }
        };
    }

    private static void exitProcedure(int code, String message) {
        Call c = CURRENT.get();
        if (c == null) Runtime.getRuntime().halt(code);
        if (message != null) System.err.println(message);
        c.exit(code);
    }

    private static void run(Call c, String mainClass, String[] args) {
        CURRENT.set(c);
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof ToolExit)) {
                e.getCause().printStackTrace();
                if (c.status == null) c.status = 1;
            }
        } catch (ReflectiveOperationException e) {
            e.printStackTrace();
            if (c.status == null) c.status = 127;
        }
        Integer status = c.status;
        c.status = null; // what the hooks print counts
        for (Runnable hook : c.hooks) {
            try {
                hook.run();
            } catch (ToolExit e) {
                c.status = null;
            }
        }
        c.status = status == null ? 0 : status;
    }

    private static String encode(ByteArrayOutputStream b) {
        return Base64.getEncoder().encodeToString(b.toByteArray());
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(split(System.err, false));
        System.setErr(split(System.err, true));
        System.setIn(new java.io.FileInputStream(java.io.FileDescriptor.in));
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setIn(splitInput());
        Exit.setExitProcedure(ToolServer::exitProcedure);
        Exit.setHaltProcedure(ToolServer::exitProcedure);
        Exit.setShutdownHookAdder((name, hook) -> {
            Call c = CURRENT.get();
            if (c != null) c.hooks.add(hook);
        });
        answers.println("ready");
        answers.flush();
        Base64.Decoder base64 = Base64.getDecoder();
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] parts = line.split("\t", -1);
            Call c = new Call(parts[2].equals("-") ? new byte[0] : base64.decode(parts[2]));
            String[] args = new String[parts.length - 3];
            for (int i = 0; i < args.length; i++) args[i] = new String(base64.decode(parts[i + 3]), StandardCharsets.UTF_8);
            Thread t = new Thread(() -> {
                run(c, parts[1], args);
                synchronized (answers) {
                    answers.println(parts[0] + "\t" + c.status + "\t" + encode(c.out) + "\t" + encode(c.err));
                    answers.flush();
                }
            });
            t.setDaemon(true);
            t.start();
        }
        Runtime.getRuntime().halt(0);
    }
}
