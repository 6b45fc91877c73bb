package dev.sagad.sagatest;

import com.google.protobuf.ByteString;
import dev.sagad.worker.Handler;
import dev.sagad.worker.Outcome;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * Plays a small saga with handlers as they are, without an orchestrator: steps in order, each with the
 * outputs of those before; when one is REJECTED, the compensations of those that are done, in reverse
 * order. It stops at anything else: what follows from an UNKNOWN is the definition's to say.
 *
 * <pre>{@code
 * FakeSaga saga = new FakeSaga("settlement", payment.toByteString())
 *     .step("debit", bank::debit, bank::refund)
 *     .step("notify", risk::notify, null);
 * assertEquals(FakeSaga.End.COMPENSATED, saga.play());
 * }</pre>
 */
public final class FakeSaga {

  /** How it ended. */
  public enum End {
    /** Every step is done. */
    SUCCEEDED,
    /** One was rejected, the others were taken back. */
    COMPENSATED,
    /** An outcome that no worker alone can follow: see {@link FakeSaga#played}. */
    STOPPED
  }

  /** One call of a handler. */
  public record Played(String step, boolean compensation, Outcome outcome) {}

  private record Step(String name, Handler action, Handler compensation) {}

  private final String definition;
  private final String sagaId = "fake-" + UUID.randomUUID();
  private final ByteString input;
  private final List<Step> steps = new ArrayList<>();
  private final List<Played> played = new ArrayList<>();

  /** Begins one. */
  public FakeSaga(String definition, ByteString input) {
    this.definition = definition;
    this.input = input;
  }

  /**
   * Adds a step.
   *
   * @param compensation null: there is nothing to take back
   */
  public FakeSaga step(String name, Handler action, Handler compensation) {
    steps.add(new Step(name, action, compensation));
    return this;
  }

  /** What was called so far, in order. */
  public List<Played> played() {
    return List.copyOf(played);
  }

  /** Plays it to its end. */
  public End play() {
    List<Played> done = new ArrayList<>();
    for (Step step : steps) {
      TestTask task = TestTask.action(step.name).saga(definition, sagaId, step.name).input(input);
      done.forEach(before -> task.output(before.step, before.outcome.output()));
      Played now = new Played(step.name, false, task.run(step.action));
      played.add(now);
      switch (now.outcome.kind()) {
        case OUTCOME_DONE, OUTCOME_ALREADY_DONE -> done.add(now);
        case OUTCOME_REJECTED -> {
          return takeBack(done);
        }
        default -> {
          return End.STOPPED;
        }
      }
    }
    return End.SUCCEEDED;
  }

  private End takeBack(List<Played> done) {
    for (int i = done.size() - 1; i >= 0; i--) {
      Step step = steps.get(i);
      if (step.compensation == null) {
        continue;
      }
      TestTask task =
          TestTask.compensation(step.name, done.get(i).outcome.output())
              .saga(definition, sagaId, step.name)
              .input(input);
      Played now = new Played(step.name, true, task.run(step.compensation));
      played.add(now);
      boolean undone =
          switch (now.outcome.kind()) {
            case OUTCOME_DONE, OUTCOME_ALREADY_DONE -> true;
            default -> false;
          };
      if (!undone) {
        return End.STOPPED;
      }
    }
    return End.COMPENSATED;
  }
}
