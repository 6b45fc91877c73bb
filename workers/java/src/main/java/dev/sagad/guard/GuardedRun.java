package dev.sagad.guard;

import com.google.protobuf.ByteString;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Task;
import dev.sagad.worker.Unknown;
import java.sql.Connection;
import java.sql.SQLException;

/** One guarded transaction on a JDBC connection, and what its end means for the task. */
final class GuardedRun {

  private final Guard guard;
  private final Task task;
  private final Connection connection;
  private boolean committed;

  GuardedRun(Guard guard, Task task, Connection connection) {
    this.guard = guard;
    this.task = task;
    this.connection = connection;
  }

  ByteString run(Guard.Body body) {
    boolean autoCommit = begin();
    try {
      return inTransaction(body);
    } catch (SQLException e) { // before COMMIT: whatever the reason, nothing took effect
      throw new Retry(guard.codeOf(e), e.getMessage());
    } finally {
      end(autoCommit);
    }
  }

  private boolean begin() {
    try {
      boolean autoCommit = connection.getAutoCommit();
      if (autoCommit) {
        connection.setAutoCommit(false);
      } else if (Transactions.state(connection) == Transactions.State.OPEN) {
        throw new Retry("GUARD_CONNECTION_IN_USE", "the connection is inside a transaction");
      }
      return autoCommit;
    } catch (SQLException e) {
      throw new Retry("GUARD_CONNECTION", e.getMessage());
    }
  }

  /** Leaves no transaction open: what cannot be rolled back is cut off. */
  private void end(boolean autoCommit) {
    try {
      if (!committed && !connection.isClosed()) {
        connection.rollback();
      }
      if (autoCommit && !connection.isClosed()) {
        connection.setAutoCommit(true);
      }
    } catch (SQLException e) {
      cutOff();
    }
  }

  private void cutOff() {
    try {
      connection.abort(Runnable::run);
    } catch (SQLException e) {
      throw new Unknown(
          "GUARD_CONNECTION", "a connection could not be rolled back nor closed: " + e.getMessage());
    }
  }

  private ByteString inTransaction(Guard.Body body) throws SQLException {
    Entered entered = guard.enter(task, connection);
    switch (entered.answer()) {
      case PROCEED:
        return proceed(body);
      case EMPTY:
        if (guard.emptyNeedsDone()) {
          guard.done(task, connection, null);
        }
        commit();
        return ByteString.EMPTY;
      case DUPLICATE:
        commit();
        throw entered.outcome();
      default:
        throw entered.outcome();
    }
  }

  private ByteString proceed(Guard.Body body) throws SQLException {
    ByteString output;
    try {
      output = body.run(connection);
    } catch (Rejected no) {
      return recordNoEffect(no);
    } catch (Retry | Unknown said) {
      checkOpen();
      throw said;
    } catch (SQLException e) {
      checkOpen();
      throw e;
    } catch (Exception e) {
      checkOpen();
      throw new Retry("GUARD_BODY_FAILED", e.toString()); // it is rolled back
    }
    checkOpen();
    guard.done(task, connection, output);
    commit();
    return output;
  }

  /** A body that has ended the transaction has committed, for all that is known. */
  private void checkOpen() throws SQLException {
    boolean ended =
        !connection.isClosed()
            && (connection.getAutoCommit()
                || Transactions.state(connection) == Transactions.State.IDLE);
    if (ended) {
      throw new Unknown("GUARD_BODY_COMMITTED", "the body ended the guard's transaction");
    }
  }

  /**
   * The body said no. The fence is remembered before REJECTED is reported, so that an older holder that
   * wakes up later is stale; if that fails the whole is a RETRY, which is as true.
   */
  private ByteString recordNoEffect(Rejected no) throws SQLException {
    checkOpen();
    connection.rollback();
    Entered entered = guard.noEffect(task, connection);
    switch (entered.answer()) {
      case RECORDED:
        commit();
        throw no;
      case EMPTY: // a compensation that there is nothing to do for: not a no
        commit();
        return ByteString.EMPTY;
      case DUPLICATE:
        commit();
        throw entered.outcome();
      default:
        throw entered.outcome();
    }
  }

  private void commit() throws SQLException {
    connection.clearWarnings();
    try {
      connection.commit();
    } catch (SQLException e) {
      if (guard.hasRolledBack(e)) {
        throw e;
      }
      throw new Unknown("GUARD_COMMIT_UNKNOWN", e.getMessage());
    }
    committed = true;
    String warning = guard.warningOf(connection);
    if (warning != null) {
      throw new Unknown("GUARD_COMMIT_LOCAL", "the commit was confirmed with a warning: " + warning);
    }
  }
}
