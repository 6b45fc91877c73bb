package dev.sagad.guard;

import com.google.protobuf.ByteString;
import dev.sagad.worker.OutcomeException;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Task;
import dev.sagad.worker.Unknown;
import java.sql.Connection;
import java.sql.SQLException;
import javax.sql.DataSource;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionException;
import org.springframework.transaction.TransactionStatus;
import org.springframework.transaction.support.DefaultTransactionDefinition;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * The guard in a transaction of Spring's: what the body does through JdbcTemplate, repositories or JPA
 * on the same data source is in it. {@link #run} begins and ends the transaction; {@link #enter} and
 * {@link #done} take part in one that is open, of {@code @Transactional}. Any thread.
 */
public final class SpringGuard {

  private final Guard guard;
  private final DataSource dataSource;
  private final PlatformTransactionManager transactions;

  /**
   * Makes one.
   *
   * @param guard {@link Guard#postgresql()} or {@link Guard#mysql()}
   * @param dataSource holds the business tables and the guard's
   * @param transactions of that data source
   */
  public SpringGuard(
      Guard guard, DataSource dataSource, PlatformTransactionManager transactions) {
    this.guard = guard;
    this.dataSource = dataSource;
    this.transactions = transactions;
  }

  /** The effect, inside the transaction. */
  @FunctionalInterface
  public interface Body {
    /** As {@link Guard.Body#run}. */
    ByteString run() throws Exception;
  }

  /** As {@link Guard#run}, in a new transaction of Spring's; refused where one is open. */
  public ByteString run(Task task, Body body) {
    Guard.checkOperation(task);
    if (TransactionSynchronizationManager.isActualTransactionActive()) {
      throw new Retry("GUARD_CONNECTION_IN_USE", "the thread is inside a transaction");
    }
    try {
      return inTransaction(
          () -> {
            Entered entered = enter(task);
            return switch (entered.answer()) {
              case PROCEED -> proceed(task, body);
              case EMPTY -> empty(task);
              case DUPLICATE -> new Ended(null, entered.outcome());
              default -> throw entered.outcome();
            };
          });
    } catch (BusinessNo no) {
      return recordNoEffect(task, no.said);
    }
  }

  /** What a transaction ends with when it commits: an output, or what is thrown afterwards. */
  private record Ended(ByteString output, OutcomeException outcome) {}

  /** What the body rejected, and not the guard. */
  private static final class BusinessNo extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final transient Rejected said;

    BusinessNo(Rejected said) {
      super(said);
      this.said = said;
    }
  }

  @FunctionalInterface
  private interface Work {
    Ended run() throws SQLException;
  }

  private Ended proceed(Task task, Body body) throws SQLException {
    ByteString output;
    try {
      output = body.run();
    } catch (Rejected no) {
      throw new BusinessNo(no);
    } catch (Retry | Unknown said) {
      throw said;
    } catch (Exception e) { // it is rolled back
      SQLException sql = sqlOf(e);
      throw sql != null
          ? new Retry(guard.codeOf(sql), sql.getMessage())
          : new Retry("GUARD_BODY_FAILED", e.toString());
    }
    done(task, output);
    return new Ended(output, null);
  }

  private Ended empty(Task task) throws SQLException {
    if (guard.emptyNeedsDone()) {
      done(task, null);
    }
    return new Ended(ByteString.EMPTY, null);
  }

  /** As {@link Guard#run} does: the fence is remembered before REJECTED is reported. */
  private ByteString recordNoEffect(Task task, Rejected no) {
    return inTransaction(
        () -> {
          Entered entered = guard.noEffect(task, connection());
          return switch (entered.answer()) {
            case RECORDED -> new Ended(null, no);
            case EMPTY -> new Ended(ByteString.EMPTY, null); // nothing to undo: not a no
            case DUPLICATE -> new Ended(null, entered.outcome());
            default -> throw entered.outcome();
          };
        });
  }

  private ByteString inTransaction(Work work) {
    TransactionStatus status;
    try {
      status = transactions.getTransaction(new DefaultTransactionDefinition());
    } catch (TransactionException e) {
      throw new Retry("GUARD_CONNECTION", e.toString());
    }
    Ended ended;
    WarningCheck warnings = new WarningCheck();
    try {
      TransactionSynchronizationManager.registerSynchronization(warnings);
      ended = work.run();
      connection().clearWarnings();
    } catch (SQLException e) { // before COMMIT: whatever the reason, nothing took effect
      rollBack(status);
      throw new Retry(guard.codeOf(e), e.getMessage());
    } catch (RuntimeException | Error e) {
      rollBack(status);
      throw e;
    }
    commit(status, warnings);
    if (ended.outcome != null) {
      throw ended.outcome;
    }
    return ended.output;
  }

  /** Spring gives back or closes the connection in any case. */
  private void rollBack(TransactionStatus status) {
    if (status.isCompleted()) {
      throw new Unknown("GUARD_BODY_COMMITTED", "the body ended the guard's transaction");
    }
    try {
      transactions.rollback(status);
    } catch (TransactionException e) {
      System.getLogger("dev.sagad.guard").log(System.Logger.Level.WARNING, "rollback failed", e);
    }
  }

  private void commit(TransactionStatus status, WarningCheck warnings) {
    if (status.isCompleted()) {
      throw new Unknown("GUARD_BODY_COMMITTED", "the body ended the guard's transaction");
    }
    if (status.isRollbackOnly()) {
      rollBack(status);
      throw new Retry("GUARD_ROLLED_BACK", "the transaction was marked to be rolled back");
    }
    try {
      transactions.commit(status);
    } catch (RuntimeException e) {
      SQLException sql = sqlOf(e);
      if (sql != null && guard.hasRolledBack(sql)) {
        throw new Retry(guard.codeOf(sql), sql.getMessage());
      }
      throw new Unknown("GUARD_COMMIT_UNKNOWN", e.toString());
    }
    if (warnings.found != null) {
      throw new Unknown(
          "GUARD_COMMIT_LOCAL", "the commit was confirmed with a warning: " + warnings.found);
    }
  }

  private static SQLException sqlOf(Throwable error) {
    for (Throwable at = error; at != null; at = at.getCause()) {
      if (at instanceof SQLException sql) {
        return sql;
      }
    }
    return null;
  }

  /** Looks at what COMMIT said while the connection is still the transaction's. */
  private final class WarningCheck implements TransactionSynchronization {
    private String found;

    @Override
    public void afterCommit() {
      try {
        found = guard.warningOf(connection());
      } catch (SQLException e) {
        found = e.getMessage();
      }
    }
  }

  /* Parts, for a transaction that is open. */

  /**
   * The first thing of the transaction that is open on this thread; it does not commit without {@link
   * #done} then. Throw {@link Entered#outcome} where there is one; of DUPLICATE after the commit.
   *
   * @throws SQLException nothing took effect: roll back, RETRY
   * @throws IllegalStateException no transaction is open
   */
  public Entered enter(Task task) throws SQLException {
    if (!TransactionSynchronizationManager.isActualTransactionActive()
        || !TransactionSynchronizationManager.isSynchronizationActive()) {
      throw new IllegalStateException("the guard is entered inside a transaction of Spring's");
    }
    Entered entered = guard.enter(task, connection());
    boolean needsDone =
        entered.answer() == Answer.PROCEED
            || (entered.answer() == Answer.EMPTY && guard.emptyNeedsDone());
    if (needsDone) {
      TransactionSynchronizationManager.bindResource(keyOf(task), Boolean.TRUE);
      TransactionSynchronizationManager.registerSynchronization(new DoneCheck(keyOf(task)));
    }
    return entered;
  }

  /**
   * The last thing of the transaction, after PROCEED and EMPTY.
   *
   * @param output what a repeat is told; null: none
   * @throws SQLException nothing took effect: roll back, RETRY
   */
  public void done(Task task, ByteString output) throws SQLException {
    guard.done(task, connection(), output);
    TransactionSynchronizationManager.unbindResourceIfPossible(keyOf(task));
  }

  private record Key(SpringGuard guard, Task task) {}

  private Key keyOf(Task task) {
    return new Key(this, task);
  }

  /** The connection of the transaction that is open on this thread. */
  private Connection connection() {
    return DataSourceUtils.getConnection(dataSource);
  }

  /** Refuses the commit of what was entered and not done: MySQL would let it through. */
  private record DoneCheck(Key key) implements TransactionSynchronization {
    @Override
    public void beforeCommit(boolean readOnly) {
      if (TransactionSynchronizationManager.hasResource(key)) {
        throw new IllegalStateException("the guard was entered, and done was not called");
      }
    }

    @Override
    public void afterCompletion(int status) {
      TransactionSynchronizationManager.unbindResourceIfPossible(key);
    }
  }
}
