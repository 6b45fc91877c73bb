package dev.sagad.worker;

import com.google.protobuf.ByteString;
import com.google.protobuf.MessageLite;

/** The other side says that it exists already. */
public final class AlreadyDone extends OutcomeException {

  private static final long serialVersionUID = 1;

  /**
   * It is there.
   *
   * @param output what the operation would have answered; may be null
   * @param ours the other side confirmed that it is there under our idempotency key
   */
  public AlreadyDone(ByteString output, boolean ours) {
    super(Outcome.success(dev.sagad.v1.Outcome.OUTCOME_ALREADY_DONE, output, ours));
  }

  /**
   * It is there.
   *
   * @param output what the operation would have answered
   * @param ours the other side confirmed that it is there under our idempotency key
   */
  public AlreadyDone(MessageLite output, boolean ours) {
    this(output.toByteString(), ours);
  }
}
