import java.io.IOException;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What the programs beside this file do, as their arguments say. */
abstract class Stories {
    static final String BASE_URL = System.getenv("BASE_URL");
    static final String TIMEOUT = System.getenv("TIMEOUT");
    static final String PREFER = System.getenv("PREFER");

    abstract void call() throws InterruptedException;

    /** Calls keep with each line of a stream, until it returns false. */
    abstract void stream(Predicate<String> keep) throws IOException, InterruptedException;

    abstract double timeout();

    void run(String[] args) throws IOException, InterruptedException {
        switch (args[0]) {
            case "calls":
                for (int i = Integer.parseInt(args[1]); i > 0; i--) {
                    call();
                }
                break;
            case "stream":
                stream(line -> { event(line); return true; });
                break;
            case "stop": // in the middle of a stream
                stream(line -> !event(line));
                break;
            case "defaults":
                System.out.println("{\"timeout\":" + timeout() + ",\"retries\":0}");
                break;
        }
    }

    private static final Pattern CONTENT = Pattern.compile("^data: \\{.*\"content\":\"([^\"]*)\"");

    private static boolean event(String line) {
        Matcher m = CONTENT.matcher(line);
        if (m.find()) {
            System.out.println("{\"event\":\"" + m.group(1) + "\"}");
            return true;
        }
        return false;
    }

    static void answered(int status, String body, Optional<String> retryAfter, Optional<String> via, Optional<String> timing) {
        System.out.println("{\"status\":" + status + ",\"answer\":" + body.strip() + ",\"retryAfter\":\"" + retryAfter.orElse("")
            + "\",\"via\":\"" + via.orElse("") + "\",\"timing\":\"" + timing.orElse("") + "\"}");
    }

    static void failed(Exception e) {
        System.out.println("{\"error\":\"" + e.getClass().getSimpleName() + "\",\"message\":\"" + e.getMessage() + "\"}");
    }
}
