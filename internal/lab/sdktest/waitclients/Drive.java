import java.net.URI;
import java.net.http.*;

/** Does work under a permit: Drive POLICY KEY WAIT URL [settle=N] [penalize=N] [fail]. */
class Drive {
    public static void main(String[] args) throws Exception {
        try (Client.Permit permit = Client.acquire("{\"policy\": \"" + args[0] + "\", \"key\": \"" + args[1] + "\"}", Double.parseDouble(args[2]))) {
            HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(args[3])).build(), HttpResponse.BodyHandlers.ofString());
            for (int i = 4; i < args.length; i++) {
                if (args[i].equals("fail")) throw new IllegalStateException("the work has failed");
                int value = Integer.parseInt(args[i].substring(args[i].indexOf('=') + 1));
                if (args[i].startsWith("settle")) permit.settle(value);
                else permit.penalize(value);
            }
        } catch (Client.Refused refused) {
            System.err.println(refused.getMessage());
            System.exit(75);
        } catch (IllegalStateException failed) {
            System.exit(3);
        }
    }
}
