import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Iterator;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** Calls a model with java.net.http, at $BASE_URL. */
class JavaNet extends Stories {
    final HttpClient client = HttpClient.newHttpClient();

    public static void main(String[] args) throws Exception {
        new JavaNet().run(args);
    }

    HttpRequest request(String body) {
        HttpRequest.Builder b = HttpRequest.newBuilder(URI.create(BASE_URL + "/chat/completions"))
            .header("Content-Type", "application/json").POST(BodyPublishers.ofString(body));
        if (TIMEOUT != null) {
            b.timeout(Duration.ofMillis((long) (1000 * Double.parseDouble(TIMEOUT))));
        }
        if (PREFER != null) {
            b.header("Prefer", PREFER);
        }
        return b.build();
    }

    void call() throws InterruptedException {
        try {
            HttpResponse<String> answer = client.send(request("{\"model\":\"m\"}"), BodyHandlers.ofString());
            answered(answer.statusCode(), answer.body(), answer.headers().firstValue("Retry-After"),
                answer.headers().firstValue("Via"), answer.headers().firstValue("Server-Timing"));
        } catch (IOException e) {
            failed(e);
        }
    }

    void stream(Predicate<String> keep) throws IOException, InterruptedException {
        try (Stream<String> lines = client.send(request("{\"model\":\"m\",\"stream\":true}"), BodyHandlers.ofLines()).body()) {
            for (Iterator<String> i = lines.iterator(); i.hasNext() && keep.test(i.next());) {
            }
        }
    }

    double timeout() {
        return request("").timeout().map(d -> d.toMillis() / 1000.0).orElse(0.0);
    }
}
