import java.net.URI;
import java.net.http.*;
import java.time.Duration;
import java.util.*;
import java.util.regex.*;

/**
 * Permits of throttle's waiting API, for Java 11 and later. Nothing has to be installed.
 *
 * <pre>
 * try (Client.Permit permit = Client.acquire("{\"policy\": \"shop\", \"key\": \"acme\"}", 60)) {
 *     HttpResponse&lt;String&gt; response = http.send(request, BodyHandlers.ofString());
 *     if (response.statusCode() == 429) permit.penalize(30);
 * }
 * </pre>
 *
 * "java Client.java POLICY" acquires a permit, and releases it.
 */
public class Client {
    static final String URL = Objects.requireNonNullElse(System.getenv("THROTTLE_URL"), "http://127.0.0.1:7070");
    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** The work may not start. The message is the answer, which says why. */
    public static class Refused extends RuntimeException {
        final double retryAfter; // in seconds

        Refused(HttpResponse<String> response) {
            super(response.body());
            retryAfter = response.headers().firstValue("Retry-After").map(Double::valueOf).orElse(Double.POSITIVE_INFINITY);
        }
    }

    public static class Permit implements AutoCloseable {
        final String name;

        Permit(String answer) {
            Matcher found = Pattern.compile("\"permit\":\"([^\"]+)\"").matcher(answer);
            if (!found.find()) throw new IllegalStateException("an answer without a permit");
            name = found.group(1);
        }

        public void settle(int cost) { change("settle", ", \"cost\": " + cost); }

        public void penalize(double seconds) { change("penalize", ", \"duration\": " + seconds); }

        /** Releases the permit. If that fails it expires, or has expired: then its lifetime was too short. */
        @Override public void close() {
            try { change("release", ""); } catch (RuntimeException e) { System.err.println("the permit was not released: " + e.getMessage()); }
        }

        void change(String path, String fields) {
            try { post(path, "{\"permit\": \"" + name + "\"" + fields + "}", 20, "none"); } catch (java.io.IOException e) { throw new java.io.UncheckedIOException(e); }
        }
    }

    static String post(String path, String body, double timeout, String key) throws java.io.IOException {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(URL + "/v1/" + path)).timeout(Duration.ofMillis((long) (timeout * 1000)))
            .header("Content-Type", "application/json").header("Idempotency-Key", key).POST(HttpRequest.BodyPublishers.ofString(body));
        String token = System.getenv("THROTTLE_TOKEN"); // HttpClient sends no Proxy-Authorization to a server
        if (token != null) request.header("Authorization", "Basic " + Base64.getEncoder().encodeToString(("throttle:" + token).getBytes()));
        try {
            HttpResponse<String> response = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
            if (response.statusCode() / 100 != 2) throw new Refused(response);
            return response.body();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new java.io.InterruptedIOException();
        }
    }

    /** Returns a permit for demands, such as {"policy": "shop"}, that are JSON with commas between them. */
    public static Permit acquire(String demands, double wait) throws Exception {
        String key = UUID.randomUUID().toString();
        double end = System.nanoTime() / 1e9 + wait;
        for (;;) {
            double left = Math.max(0, end - System.nanoTime() / 1e9), pause = 0.5;
            Exception failure;
            try {
                return new Permit(post("acquire", "{\"demands\": [" + demands + "], \"wait\": " + left + "}", left + 20, key));
            } catch (Refused e) {
                failure = e;
                pause = e.retryAfter;
            } catch (java.io.IOException e) { // without an answer the same key is sent again: nothing is charged twice
                failure = e;
            }
            if (failure instanceof java.io.InterruptedIOException && Thread.currentThread().isInterrupted() || System.nanoTime() / 1e9 + pause > end) throw failure;
            Thread.sleep((long) (pause * 1000));
        }
    }

    public static void main(String[] args) throws Exception {
        try (Permit permit = acquire("{\"policy\": \"" + args[0] + "\"}", 60)) {
            System.out.println("the work may start: " + permit.name);
        }
    }
}
