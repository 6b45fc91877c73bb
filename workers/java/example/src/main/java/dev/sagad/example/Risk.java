package dev.sagad.example;

import bank.v1.SettlementOuterClass.Payment;
import bank.v1.SettlementOuterClass.RiskCase;
import com.google.protobuf.Empty;
import demo.risk.v1.Risk.NotifyReply;
import demo.risk.v1.Risk.NotifyRequest;
import demo.risk.v1.Risk.WithdrawRequest;
import demo.risk.v1.RiskServiceGrpc;
import dev.sagad.worker.AlreadyDone;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Task;
import dev.sagad.worker.Unknown;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** The third party that freezes an account at a second call: what may be claimed of a call to it. */
final class Risk {

  private static final long TIMEOUT_MS = 3000; // nearly four times its P99

  private final ManagedChannel channel;

  Risk(String address) {
    channel =
        NettyChannelBuilder.forTarget(address)
            .usePlaintext()
            .disableRetry() // a call is made once
            .proxyDetector(target -> null)
            .build();
  }

  /** The last look, and a stub whose calls are over before the attempt is. */
  private RiskServiceGrpc.RiskServiceBlockingStub stub(Task task) {
    long left = Math.min(TIMEOUT_MS, task.timeLeft().toMillis()); // before the look
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(left);
    if (!task.stillMine()) {
      throw new Retry("TOO_LATE", "the lease was over before the call");
    }
    return RiskServiceGrpc.newBlockingStub(channel)
        .withDeadlineAfter(until - System.nanoTime(), TimeUnit.NANOSECONDS);
  }

  /** INVALID_ARGUMENT had no effect; a connection that could not be made is the classifier's. */
  private static <T> T call(Supplier<T> call) {
    try {
      return call.get();
    } catch (StatusRuntimeException e) {
      if (e.getStatus().getCode() == Status.Code.INVALID_ARGUMENT) {
        throw new Rejected("INVALID_ARGUMENT", e.getStatus().getDescription());
      }
      throw e;
    }
  }

  RiskCase tell(Task task, Payment payment) {
    NotifyRequest request =
        NotifyRequest.newBuilder()
            .setIdempotencyKey(task.idempotencyKey())
            .setSettlementId(payment.getPaymentId())
            .setAccount(payment.getAccount())
            .setAmountCents(payment.getAmountCents())
            .setBehaviour(payment.getRisk())
            .build();
    NotifyReply reply = call(() -> stub(task).notify(request));
    RiskCase found = RiskCase.newBuilder().setReference(reply.getReference()).build();
    switch (reply.getVerdict()) {
      case VERDICT_ACCEPTED:
        return found;
      case VERDICT_ALREADY_EXISTS:
        throw new AlreadyDone(found, reply.getIdempotencyKey().equals(task.idempotencyKey()));
      case VERDICT_REFUSED:
        throw new Rejected("REFUSED", reply.getMessage());
      case VERDICT_TRY_LATER:
        throw new Retry("TRY_LATER", reply.getMessage());
      default:
        throw new Unknown("UNKNOWN_VERDICT", "risk answered what nobody knows");
    }
  }

  Empty withdraw(Task task, Payment payment) {
    WithdrawRequest request =
        WithdrawRequest.newBuilder()
            .setIdempotencyKey(task.idempotencyKey())
            .setSettlementId(payment.getPaymentId())
            .build();
    call(() -> stub(task).withdraw(request)); // an OK is the whole answer
    return Empty.getDefaultInstance();
  }
}
