package dev.sagad.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** A call that failed, with what the orchestrator said about it (google.rpc.Status). */
public final class SagaException extends RuntimeException {

  private static final long serialVersionUID = 1;

  private final Status.Code code;
  private final String reason;
  private final transient Map<String, String> fields;
  private final Duration retryDelay;

  SagaException(StatusRuntimeException error) {
    super(error.getMessage(), error);
    this.code = error.getStatus().getCode();
    String found = "";
    Duration delay = Duration.ZERO;
    Map<String, String> violations = new LinkedHashMap<>();
    com.google.rpc.Status details = StatusProto.fromThrowable(error);
    if (details != null) {
      for (Any any : details.getDetailsList()) {
        try {
          if (any.is(ErrorInfo.class)) {
            found = any.unpack(ErrorInfo.class).getReason();
          } else if (any.is(BadRequest.class)) {
            any.unpack(BadRequest.class)
                .getFieldViolationsList()
                .forEach(field -> violations.put(field.getField(), field.getDescription()));
          } else if (any.is(RetryInfo.class)) {
            var wire = any.unpack(RetryInfo.class).getRetryDelay();
            delay = Duration.ofSeconds(wire.getSeconds(), wire.getNanos());
          }
        } catch (InvalidProtocolBufferException e) {
          addSuppressed(e); // the code and the message are there all the same
        }
      }
    }
    this.reason = found;
    this.fields = Map.copyOf(violations);
    this.retryDelay = delay;
  }

  /** The status. */
  public Status.Code code() {
    return code;
  }

  /** Stable, for programs: INPUT_MISMATCH, CANCEL_NOT_ALLOWED; "": none. */
  public String reason() {
    return reason;
  }

  /** What was wrong with which field of the request. */
  public Map<String, String> fields() {
    return fields == null ? Map.of() : fields;
  }

  /** Not before; zero: not said. */
  public Duration retryDelay() {
    return retryDelay;
  }
}
