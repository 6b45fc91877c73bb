package dev.sagad.guard;

import com.google.protobuf.ByteString;
import dev.sagad.worker.Operation;
import dev.sagad.worker.Task;
import dev.sagad.worker.Unknown;
import java.sql.Connection;
import java.sql.SQLException;

/**
 * The participant's guard (sql/guard) by JDBC: makes an effect in your own database happen at most once,
 * and never after its compensation. The guard's statements and the effect must run in one transaction,
 * on one connection.
 *
 * <p>{@link #run} does all of it. {@link #enter}, {@link #done} and {@link #noEffect} are its parts, for
 * a transaction that you begin and end yourself; {@link SpringGuard} is for Spring's. Immutable; any
 * thread, a connection by one at a time.
 */
public abstract class Guard {

  private static final Guard POSTGRESQL = new PostgresqlGuard(false);
  private static final Guard MYSQL = new MysqlGuard(false);

  final boolean evenWithoutAction;

  Guard(boolean evenWithoutAction) {
    this.evenWithoutAction = evenWithoutAction;
  }

  /** For PostgreSQL 14 or newer. */
  public static Guard postgresql() {
    return POSTGRESQL;
  }

  /** For MySQL 8.0.16, MariaDB 10.11 or newer. */
  public static Guard mysql() {
    return MYSQL;
  }

  /**
   * A compensation whose action left no trace in the database is run (PROCEED) and not passed over
   * (EMPTY): for an action that also has an effect outside of the database, which a rolled back
   * transaction does not take back. The body must then bear that there is nothing to undo.
   */
  public abstract Guard evenWithoutAction();

  /** The effect, inside the guard's transaction. */
  @FunctionalInterface
  public interface Body {
    /**
     * Has its effect; must not end the transaction.
     *
     * @param connection the guard's
     * @return the output, null for none: it stands
     * @throws dev.sagad.worker.Rejected a business no: it is rolled back, and remembered
     * @throws Exception rolled back; RETRY, or what it says itself (RETRY, UNKNOWN)
     */
    ByteString run(Connection connection) throws Exception;
  }

  /**
   * BEGIN, enter, the body if the guard says PROCEED, done, COMMIT.
   *
   * <p>PROCEED: the body's output · DUPLICATE: ALREADY_DONE (ours, stored output) · EMPTY: no output ·
   * REFUSED: REJECTED GUARD_REFUSED · STALE: RETRY GUARD_STALE · an error or a lost connection before
   * COMMIT: RETRY · a COMMIT without an answer: UNKNOWN.
   *
   * @param connection outside of a transaction, autocommit on or off (then nothing may have been done on
   *     it since its last commit or rollback); left so, without a transaction
   * @return the output: return it from the handler
   * @throws dev.sagad.worker.OutcomeException every other end
   */
  public ByteString run(Task task, Connection connection, Body body) {
    checkOperation(task);
    return new GuardedRun(this, task, connection).run(body);
  }

  static void checkOperation(Task task) {
    if (task.operation() == Operation.PROBE) {
      throw new Unknown("GUARD_PROBE", "the guard is for actions and compensations");
    }
  }

  /**
   * The first thing of the transaction that is open on the connection.
   *
   * @throws SQLException nothing took effect: ROLLBACK, RETRY
   */
  public abstract Entered enter(Task task, Connection connection) throws SQLException;

  /**
   * The last thing of the transaction, after PROCEED and EMPTY.
   *
   * @param output what a repeat is told; null: none
   * @throws SQLException nothing took effect: ROLLBACK, RETRY
   */
  public abstract void done(Task task, Connection connection, ByteString output)
      throws SQLException;

  /**
   * In a transaction of its own, after the business transaction was rolled back for a business no:
   * remembers the fence, so that an older holder that wakes up later is STALE. RECORDED: it stands. Any
   * other answer is that of enter: somebody was faster, and that answer counts. COMMIT after RECORDED,
   * EMPTY and DUPLICATE.
   *
   * @throws SQLException nothing is remembered: ROLLBACK, RETRY
   */
  public abstract Entered noEffect(Task task, Connection connection) throws SQLException;

  /** The code of an error before COMMIT. */
  abstract String codeOf(SQLException error);

  /** Is it certain that a COMMIT which failed so has rolled back? */
  abstract boolean hasRolledBack(SQLException error);

  /** A COMMIT that was confirmed, but not as it should be; null: it was. */
  abstract String warningOf(Connection connection) throws SQLException;

  /** After done of an EMPTY: PostgreSQL has said it already. */
  abstract boolean emptyNeedsDone();

  static String operationOf(Task task) {
    return task.operation() == Operation.COMPENSATION ? "COMPENSATION" : "ACTION";
  }

  static long startedUs(Task task) {
    return task.startedAt().getEpochSecond() * 1_000_000 + task.startedAt().getNano() / 1000;
  }

  static byte[] bytes(ByteString output) {
    return output == null ? new byte[0] : output.toByteArray();
  }
}
