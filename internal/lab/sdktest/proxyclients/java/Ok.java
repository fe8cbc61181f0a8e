import java.io.IOException;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import okhttp3.Response;

/** Calls a model with OkHttp, at $BASE_URL. */
class Ok extends Stories {
    final OkHttpClient client;

    Ok() {
        OkHttpClient.Builder b = new OkHttpClient.Builder();
        if (TIMEOUT != null) {
            b.readTimeout((long) (1000 * Double.parseDouble(TIMEOUT)), TimeUnit.MILLISECONDS);
        }
        client = b.build();
    }

    public static void main(String[] args) throws Exception {
        new Ok().run(args);
        System.exit(0); // idle threads of the client would go on for a minute
    }

    Request request(String body) {
        Request.Builder b = new Request.Builder().url(BASE_URL + "/chat/completions")
            .post(RequestBody.create(MediaType.get("application/json"), body));
        if (PREFER != null) {
            b.header("Prefer", PREFER);
        }
        return b.build();
    }

    void call() {
        try (Response answer = client.newCall(request("{\"model\":\"m\"}")).execute()) {
            answered(answer.code(), answer.body().string(), Optional.ofNullable(answer.header("Retry-After")),
                Optional.ofNullable(answer.header("Via")), Optional.ofNullable(answer.header("Server-Timing")));
        } catch (IOException e) {
            failed(e);
        }
    }

    void stream(Predicate<String> keep) throws IOException {
        try (Response answer = client.newCall(request("{\"model\":\"m\",\"stream\":true}")).execute()) {
            for (String line = ""; line != null && keep.test(line);) {
                line = answer.body().source().readUtf8Line();
            }
        }
    }

    double timeout() {
        return client.readTimeoutMillis() / 1000.0;
    }
}
