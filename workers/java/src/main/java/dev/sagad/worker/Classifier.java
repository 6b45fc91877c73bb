package dev.sagad.worker;

import java.net.ConnectException;
import java.net.NoRouteToHostException;
import java.net.UnknownHostException;
import java.net.http.HttpConnectTimeoutException;
import java.nio.channels.UnresolvedAddressException;
import java.security.cert.CertificateException;
import java.sql.SQLException;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import javax.net.ssl.SSLHandshakeException;

/**
 * Tells of an exception that a handler let out what is certain about its attempt. What no classifier
 * knows is UNKNOWN.
 */
@FunctionalInterface
public interface Classifier {
  /**
   * Looks at one error.
   *
   * @param error what the handler threw
   * @return what is certain, for example a {@link Retry}; null: nothing
   */
  OutcomeException classify(Throwable error);

  /** This one; where it knows nothing, the other. */
  default Classifier or(Classifier other) {
    return error -> {
      OutcomeException known = classify(error);
      return known != null ? known : other.classify(error);
    };
  }

  /** Knows nothing: every uncaught exception is UNKNOWN. */
  static Classifier nothing() {
    return error -> null;
  }

  /**
   * RETRY where it is proved that the call which failed was never sent: no connection could be made
   * (refused, no route, connect time-out), the name is not known, the other side's certificate was
   * refused here, or the database gave no connection (SQLSTATE 08001, 08004); of the clients that let
   * such a cause be seen: java.net.http, HttpURLConnection, Apache's, OkHttp, gRPC, and JDBC drivers and
   * pools. UNAVAILABLE alone proves nothing.
   *
   * <p>It speaks of the call that failed. A handler that had made another call before, or a client that
   * was told to repeat calls or to follow redirects, needs {@link #nothing()}.
   */
  static Classifier standard() {
    return error -> {
      Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
      return NotSent.isProved(error, seen)
          ? new Retry("NOT_SENT", error.getClass().getSimpleName() + ": " + error.getMessage())
          : null;
    };
  }

  /** What proves it. */
  final class NotSent {

    private static final Set<String> CONNECT_ERRORS = // of libraries that this one does without
        Set.of(
            "org.apache.http.conn.ConnectTimeoutException",
            "org.apache.hc.client5.http.ConnectTimeoutException");

    private NotSent() {}

    static boolean isProved(Throwable error, Set<Throwable> seen) {
      boolean proved = false;
      for (Throwable cause = error; cause != null && seen.add(cause); cause = cause.getCause()) {
        // An earlier try of the same call, or something that failed beside it: it may have been sent.
        for (Throwable beside : cause.getSuppressed()) {
          if (!isProved(beside, seen)) {
            return false;
          }
        }
        if (isLater(cause)) {
          return false;
        }
        proved = proved || isProof(cause);
      }
      return proved;
    }

    private static boolean isProof(Throwable error) {
      return error instanceof ConnectException
          || error instanceof NoRouteToHostException
          || error instanceof UnknownHostException
          || error instanceof UnresolvedAddressException
          || error instanceof HttpConnectTimeoutException
          || CONNECT_ERRORS.contains(error.getClass().getName())
          || (error instanceof SSLHandshakeException
              && error.getCause() instanceof CertificateException)
          || (error instanceof SQLException sql
              && ("08001".equals(sql.getSQLState()) || "08004".equals(sql.getSQLState())));
    }

    /** HttpURLConnection connects again, by itself, after a request was sent or answered. */
    private static boolean isLater(Throwable error) {
      for (StackTraceElement frame : error.getStackTrace()) {
        boolean ofHttp = frame.getClassName().startsWith("sun.net.www.");
        String method = frame.getMethodName();
        if (ofHttp && (method.startsWith("parseHTTP") || method.startsWith("followRedirect"))) {
          return true;
        }
      }
      return false;
    }
  }
}
