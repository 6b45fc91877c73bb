package dev.sagad.worker;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/**
 * What came of a task, as it is reported. Handlers return an output or throw an {@link
 * OutcomeException}; this is what tests get to see.
 *
 * @param kind DONE, ALREADY_DONE, REJECTED, RETRY, UNKNOWN, NOT_DONE or STILL_UNKNOWN
 * @param output of DONE and ALREADY_DONE; empty otherwise
 * @param ours ALREADY_DONE: the other side confirmed our key
 * @param code "" of a success
 * @param message "" of a success
 * @param retryAfter RETRY: not before; zero otherwise
 */
public record Outcome(
    dev.sagad.v1.Outcome kind,
    ByteString output,
    boolean ours,
    String code,
    String message,
    Duration retryAfter) {

  static final int CODE_MAX = 128; // bytes
  static final int MESSAGE_MAX = 1024; // bytes
  static final Duration RETRY_AFTER_MAX = Duration.ofHours(24);

  static Outcome success(dev.sagad.v1.Outcome kind, ByteString output, boolean ours) {
    ByteString bytes = output == null ? ByteString.EMPTY : output;
    return new Outcome(kind, bytes, ours, "", "", Duration.ZERO);
  }

  static Outcome failure(dev.sagad.v1.Outcome kind, String code, String message) {
    return new Outcome(
        kind, ByteString.EMPTY, false, checkCode(code), clean(message), Duration.ZERO);
  }

  static Outcome retry(String code, String message, Duration after) {
    if (after == null || after.isNegative() || after.compareTo(RETRY_AFTER_MAX) > 0) {
      throw new IllegalArgumentException("retry after is 0 to 24 hours, not " + after);
    }
    return new Outcome(
        dev.sagad.v1.Outcome.OUTCOME_RETRY,
        ByteString.EMPTY,
        false,
        checkCode(code),
        clean(message),
        after);
  }

  /** Of an exception that says nothing about the outcome: it may have happened. */
  static Outcome ofError(Throwable error) {
    String code = error.getClass().getSimpleName();
    if (code.isEmpty()) {
      code = "EXCEPTION"; // an anonymous class
    }
    String message = error.getMessage();
    return failure(
        dev.sagad.v1.Outcome.OUTCOME_UNKNOWN,
        cut(clean(code), CODE_MAX),
        message == null ? error.getClass().getName() : message);
  }

  private static String checkCode(String code) {
    if (code == null
        || code.isEmpty()
        || !cut(code, CODE_MAX).equals(code)
        || code.codePoints().anyMatch(Character::isISOControl)) {
      throw new IllegalArgumentException(
          "a code is 1 to " + CODE_MAX + " bytes of text without control characters");
    }
    return code;
  }

  /** What the server takes: no control characters, at most the limit. */
  private static String clean(String message) {
    if (message == null) {
      return "";
    }
    StringBuilder text = new StringBuilder();
    message
        .codePoints()
        .limit(MESSAGE_MAX)
        .map(c -> Character.isISOControl(c) ? ' ' : c)
        .map(c -> c >= Character.MIN_SURROGATE && c <= Character.MAX_SURROGATE ? '?' : c)
        .forEach(text::appendCodePoint);
    return cut(text.toString(), MESSAGE_MAX);
  }

  /** At most so many bytes of UTF-8, whole characters. */
  private static String cut(String text, int bytes) {
    byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
    int end = Math.min(bytes, utf8.length);
    while (end < utf8.length && end > 0 && (utf8[end] & 0xC0) == 0x80) {
      end--;
    }
    return new String(utf8, 0, end, StandardCharsets.UTF_8);
  }
}
