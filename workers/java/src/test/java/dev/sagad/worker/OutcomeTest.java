package dev.sagad.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import dev.sagad.sagatest.FakeSaga;
import dev.sagad.sagatest.TestTask;
import java.io.IOException;
import java.io.InputStream;
import java.net.ConnectException;
import java.net.HttpURLConnection;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.URI;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import javax.net.ssl.SSLHandshakeException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class OutcomeTest {

  private static final Classifier STANDARD = Classifier.standard();

  private static Outcome thrown(Throwable error) {
    return TestTask.action("h")
        .run(
            task -> {
              if (error instanceof Error e) {
                throw e;
              }
              throw (Exception) error;
            });
  }

  @Test
  void messagesAreCutAndCleaned() {
    String text = new Rejected("C", "a\nb\u0000\u0085" + "\u00e4".repeat(2000)).outcome().message();
    assertTrue(text.startsWith("a b  \u00e4"));
    assertEquals(1023, text.getBytes(StandardCharsets.UTF_8).length);
    assertEquals("a?b", new Rejected("C", "a\ud800b").outcome().message());
    assertEquals("", new Rejected("C", null).outcome().message());
  }

  @Test
  void badCodesAndTimesAreRefused() {
    for (String code : new String[] {null, "", "a\nb", "x".repeat(129)}) {
      assertThrows(IllegalArgumentException.class, () -> new Rejected(code, ""));
    }
    assertThrows(
        IllegalArgumentException.class, () -> new Retry("C", "", Duration.ofSeconds(-1)));
    assertThrows(
        IllegalArgumentException.class, () -> new Retry("C", "", Duration.ofHours(25)));
  }

  @Test
  void whatIsThrownIsReported() {
    Outcome unknown = thrown(new IllegalStateException("broke"));
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_UNKNOWN, unknown.kind());
    assertEquals("IllegalStateException", unknown.code());
    assertEquals("broke", unknown.message());
    assertEquals(
        dev.sagad.v1.Outcome.OUTCOME_UNKNOWN, thrown(new AssertionError("an Error")).kind());
    assertEquals(
        dev.sagad.v1.Outcome.OUTCOME_REJECTED,
        thrown(new CompletionException(new Rejected("NO", "no"))).kind());
    assertEquals(dev.sagad.v1.Outcome.OUTCOME_NOT_DONE, thrown(new NotDone()).kind());
    assertEquals(
        "NullPointerException", TestTask.action("h").runAsync(task -> null).join().code());
    assertEquals(
        dev.sagad.v1.Outcome.OUTCOME_RETRY,
        TestTask.action("h")
            .runAsync(task -> CompletableFuture.failedFuture(new Retry("R", "")))
            .join()
            .kind());
  }

  private static <T extends Throwable> T caused(T error, Throwable cause) {
    error.initCause(cause);
    return error;
  }

  @Test
  void onlyProofIsProof() {
    Throwable[] proved = {
      new ConnectException("refused"),
      new UnknownHostException("name.invalid"),
      new RuntimeException(new ConnectException("refused")),
      new SQLException("no connection", "08001"),
      new SQLException("too many", "08004"),
      caused(new SSLHandshakeException("untrusted"), new CertificateException("untrusted")),
    };
    for (Throwable error : proved) {
      assertNotNull(STANDARD.classify(error), error::toString);
    }
    IOException retried = new ConnectException("refused");
    retried.addSuppressed(new IOException("the first try broke off"));
    Throwable[] unproved = {
      retried,
      new IOException("connection reset"),
      new SocketTimeoutException("Connect timed out"),
      new SQLException("connection lost", "08006"),
      new SQLException("link failure", "08S01"),
      new SSLHandshakeException("received alert"),
      caused(new RuntimeException(), new RuntimeException()),
    };
    for (Throwable error : unproved) {
      assertNull(STANDARD.classify(error), error::toString);
    }
    assertNull(Classifier.nothing().classify(new ConnectException("refused")));
    Classifier mine = error -> error instanceof IOException ? new Retry("MINE", "") : null;
    assertEquals("MINE", mine.or(STANDARD).classify(retried).outcome().code());
    assertNotNull(mine.or(STANDARD).classify(new SQLException("no", "08001")));
  }

  @Test
  void requestThatHttpUrlConnectionSentTwiceIsNotProved() throws Exception {
    try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      URI uri = URI.create("http://127.0.0.1:" + server.getLocalPort() + "/");
      Thread answers =
          new Thread(
              () -> {
                try (Socket socket = server.accept()) {
                  readRequest(socket.getInputStream());
                  socket.getOutputStream().write(
                      "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".getBytes());
                  readRequest(socket.getInputStream()); // the second POST arrives: an effect
                  server.close(); // and whoever connects again is refused
                } catch (IOException e) {
                  throw new IllegalStateException(e);
                }
              });
      answers.start();
      assertEquals(200, post(uri));
      IOException error = assertThrows(IOException.class, () -> post(uri));
      answers.join();
      assertNull(STANDARD.classify(error), () -> "sent twice, and yet: " + error);
    }
  }

  private static int post(URI uri) throws IOException {
    HttpURLConnection connection = (HttpURLConnection) uri.toURL().openConnection();
    connection.setRequestMethod("POST");
    connection.setDoOutput(true);
    connection.getOutputStream().write('x');
    int code = connection.getResponseCode();
    connection.getInputStream().readAllBytes(); // the connection is kept
    return code;
  }

  private static void readRequest(InputStream in) throws IOException {
    StringBuilder text = new StringBuilder();
    while (text.indexOf("\r\n\r\n") < 0 || text.charAt(text.length() - 1) != 'x') {
      int c = in.read();
      if (c < 0) {
        throw new IOException("the client closed");
      }
      text.append((char) c);
    }
  }

  @Test
  void smallSagaIsPlayedForthAndBack() {
    Handler done = task -> ByteString.copyFromUtf8(task.step());
    FakeSaga good = new FakeSaga("s", ByteString.EMPTY).step("a", done, done).step("b", done, null);
    assertEquals(FakeSaga.End.SUCCEEDED, good.play());
    Handler no =
        task -> {
          assertEquals("a", task.outputOf("a").orElseThrow().toStringUtf8());
          throw new Rejected("NO", "");
        };
    FakeSaga bad = new FakeSaga("s", ByteString.EMPTY).step("a", done, done).step("b", no, done);
    assertEquals(FakeSaga.End.COMPENSATED, bad.play());
    assertEquals(3, bad.played().size());
    assertTrue(bad.played().get(2).compensation());
    assertFalse(bad.played().get(1).compensation());
  }
}
