import com.google.protobuf.ByteString;
import dev.sagad.v1.GetSagaRequest;
import dev.sagad.v1.SagaServiceGrpc;
import dev.sagad.worker.AlreadyDone;
import dev.sagad.worker.NotDone;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.StillUnknown;
import dev.sagad.worker.Task;
import dev.sagad.worker.Unknown;
import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a script says that needs no waiting: outcomes, calls of clients, the description of a task. */
final class Scripts {

  private static final Duration CALL_TIMEOUT = Duration.ofSeconds(20);

  private Scripts() {}

  static String text(Map<String, Object> script, String name) {
    return script.get(name) instanceof String text ? text : "";
  }

  static long number(Map<String, Object> script, String name) {
    return script.get(name) instanceof Number number ? number.longValue() : 0;
  }

  /** Says what came of it: an output, or one of the SDK's exceptions, or another one. */
  static ByteString act(Task task, ByteString request, Map<String, Object> script)
      throws Exception {
    String code = text(script, "code");
    String message = text(script, "message");
    switch (text(script, "do")) {
      case "done":
        return ByteString.copyFromUtf8(text(script, "output"));
      case "echo":
        return request;
      case "done_size":
        return ByteString.copyFromUtf8("x".repeat((int) number(script, "size")));
      case "request_size":
        return ByteString.copyFromUtf8(Integer.toString(request.size()));
      case "describe":
        return ByteString.copyFromUtf8(Json.write(describe(task, script)));
      case "already_done":
        boolean ours = Boolean.TRUE.equals(script.get("ours"));
        throw new AlreadyDone(ByteString.copyFromUtf8(text(script, "output")), ours);
      case "rejected":
        throw new Rejected(code, message);
      case "retry":
        throw new Retry(code, message, Duration.ofMillis(number(script, "after_ms")));
      case "unknown":
        throw new Unknown(code, message);
      case "not_done":
        throw new NotDone();
      case "still_unknown":
        throw new StillUnknown(code, message);
      case "raise":
        throw new IllegalStateException(message);
      case "panic":
        throw new AssertionError(message);
      case "refused", "sent_then_cut":
        call(text(script, "client"), number(script, "port"));
        return ByteString.EMPTY;
      default:
        throw new IllegalArgumentException("no such script: " + script);
    }
  }

  private static void call(String client, long port) throws Exception {
    switch (client) {
      case "http" -> http("http://127.0.0.1:" + port + "/");
      case "dns" -> http("http://name.invalid/");
      case "grpc" -> grpc((int) port);
      case "postgresql" -> sql("jdbc:postgresql://127.0.0.1:" + port + "/shop?user=shop");
      case "mysql" -> sql("jdbc:mariadb://127.0.0.1:" + port + "/shop?user=shop");
      default -> throw new IllegalArgumentException("no such client: " + client);
    }
  }

  private static void http(String address) throws IOException, InterruptedException {
    HttpRequest request =
        HttpRequest.newBuilder(URI.create(address))
            .timeout(CALL_TIMEOUT)
            .POST(HttpRequest.BodyPublishers.ofString("effect"))
            .build();
    HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.discarding());
  }

  private static void grpc(int port) {
    ManagedChannel channel =
        NettyChannelBuilder.forAddress("127.0.0.1", port)
            .usePlaintext()
            .proxyDetector(target -> null)
            .build();
    try {
      SagaServiceGrpc.newBlockingStub(channel).getSaga(GetSagaRequest.getDefaultInstance());
    } finally {
      channel.shutdownNow();
    }
  }

  private static void sql(String url) throws Exception {
    try (Connection connection = DriverManager.getConnection(url)) {
      connection.createStatement().execute("SELECT 1");
    }
  }

  private static String base64(ByteString bytes) {
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }

  private static String time(Instant instant) {
    return instant == null ? null : instant.toString();
  }

  private static Map<String, Object> describe(Task task, Map<String, Object> script) {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put("namespace", task.namespace());
    out.put("definition", task.definition());
    out.put("saga_id", task.sagaId());
    out.put("run", task.run());
    java.nio.ByteBuffer uid = java.nio.ByteBuffer.allocate(16);
    uid.putLong(task.uid().getMostSignificantBits()).putLong(task.uid().getLeastSignificantBits());
    out.put("saga_uid", Base64.getEncoder().encodeToString(uid.array()));
    out.put("revision", task.revision());
    out.put("saga_start_time", time(task.startedAt()));
    out.put("step", task.step());
    out.put("operation", task.operation().name());
    out.put("handler", task.handler());
    out.put("try", task.tryNumber());
    out.put("fence", Long.toString(task.fence()));
    out.put("idempotency_key", task.idempotencyKey());
    out.put("input", base64(task.input()));
    out.put("request", base64(task.request()));
    out.put("request_type", task.requestType());
    out.put("output_type", task.outputType());
    Map<String, Object> outputs = new LinkedHashMap<>();
    for (Object step : names(script, "steps")) {
      outputs.put((String) step, task.outputOf((String) step).map(Scripts::base64).orElse(null));
    }
    out.put("outputs", outputs);
    out.put("action", task.actionOutcome().name());
    out.put("action_output", base64(task.actionOutput()));
    out.put("probed", task.probed().map(Scripts::probed).orElse(null));
    Map<String, Object> labels = new LinkedHashMap<>();
    for (Object label : names(script, "labels")) {
      labels.put((String) label, task.labels().get(label));
    }
    out.put("labels", labels);
    out.put("traceparent", task.traceparent());
    out.put("guarded", task.guarded());
    out.put("send_before", time(task.sendBefore().orElse(null)));
    out.put("time_left_ms", task.timeLeft().toMillis());
    out.put("lease_left_ms", task.leaseLeft().toMillis());
    return out;
  }

  private static Map<String, Object> probed(dev.sagad.worker.Probed probed) {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put("operation", probed.operation().name());
    out.put("try", probed.tryNumber());
    out.put("fence", Long.toString(probed.fence()));
    out.put("lease_time", time(probed.leasedAt()));
    out.put("end_time", time(probed.endedAt()));
    return out;
  }

  private static List<?> names(Map<String, Object> script, String name) {
    return script.get(name) instanceof List<?> list ? list : List.of();
  }

  /** The script in a request. */
  static Map<String, Object> of(ByteString request) {
    return Json.object(Json.parse(request.toString(StandardCharsets.UTF_8)));
  }
}
