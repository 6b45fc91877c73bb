package dev.sagad.guard;

import com.google.protobuf.ByteString;
import dev.sagad.worker.Operation;
import dev.sagad.worker.Task;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

/** The statements of sql/guard/mysql.sql, which says why they are as they are. */
final class MysqlGuard extends Guard {

  private static final String INSERT =
      "INSERT INTO saga_guard (namespace, definition, saga_id, run, step, operation, fence, state,"
          + " saga_started_us) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE ";
  private static final String BLOCK_ACTION =
      INSERT
          + "state = CASE state WHEN 'DONE' THEN 'UNDONE' WHEN 'SEEN' THEN 'BLOCKED' ELSE state END";
  private static final String CLAIM =
      INSERT
          + "state = CASE WHEN state = 'ENTERED' THEN 'LEFT_OPEN'"
          + " WHEN state = 'SEEN' AND fence <= ? THEN 'ENTERED' ELSE state END,"
          + " fence = GREATEST(fence, ?)";
  private static final String FLOOR =
      "(SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)";
  private static final String STEP =
      "namespace = ? AND definition = ? AND saga_id = ? AND run = ? AND step = ?";
  private static final String ASK_ACTION =
      "SELECT CASE WHEN state IN ('UNDONE', 'BLOCKED') THEN 'REFUSED'"
          + " WHEN state = 'DONE' THEN 'DUPLICATE' WHEN state = 'LEFT_OPEN' THEN 'LEFT_OPEN'"
          + " WHEN fence > ? OR saga_started_us < "
          + FLOOR
          + " THEN 'STALE' ELSE 'PROCEED' END AS answer, output FROM saga_guard WHERE "
          + STEP
          + " AND operation = 'ACTION' FOR UPDATE";
  private static final String ASK_COMPENSATION =
      "SELECT CASE WHEN own.state = 'DONE' THEN 'DUPLICATE'"
          + " WHEN own.state = 'LEFT_OPEN' OR action.state IN ('ENTERED', 'LEFT_OPEN')"
          + " THEN 'LEFT_OPEN'"
          + " WHEN GREATEST(own.fence, action.fence) > ? OR own.saga_started_us < "
          + FLOOR
          + " THEN 'STALE' WHEN action.state = 'BLOCKED' AND NOT ? THEN 'EMPTY'"
          + " ELSE 'PROCEED' END AS answer, own.output FROM saga_guard action JOIN saga_guard own"
          + " USING (namespace, definition, saga_id, run, step) WHERE "
          + STEP
          + " AND action.operation = 'ACTION' AND own.operation = 'COMPENSATION' FOR UPDATE";
  private static final String DONE =
      "UPDATE saga_guard SET state = 'DONE', output = ? WHERE "
          + STEP
          + " AND operation = ? AND state = 'ENTERED'";
  private static final String NO_EFFECT =
      "UPDATE saga_guard SET state = 'SEEN' WHERE "
          + STEP
          + " AND operation = ? AND state = 'ENTERED'";
  private static final String UNBLOCK =
      "UPDATE saga_guard SET state = 'DONE' WHERE "
          + STEP
          + " AND operation = 'ACTION' AND state = 'UNDONE'";

  private static final int DEADLOCK = 1213;
  private static final int ROLLED_BACK_DURING_COMMIT = 3101; // of MySQL's group replication

  MysqlGuard(boolean evenWithoutAction) {
    super(evenWithoutAction);
  }

  @Override
  public Guard evenWithoutAction() {
    return new MysqlGuard(true);
  }

  /** The five values that name a step, from this parameter on; gives back the next one. */
  private static int setStep(PreparedStatement statement, int at, Task task) throws SQLException {
    statement.setString(at, task.namespace());
    statement.setString(at + 1, task.definition());
    // Bytes: not to be converted, whatever the connection's character set is.
    statement.setBytes(at + 2, task.sagaId().getBytes(StandardCharsets.UTF_8));
    statement.setInt(at + 3, task.run());
    statement.setString(at + 4, task.step());
    return at + 5;
  }

  private static int setRow(
      PreparedStatement statement, Task task, String operation, String state)
      throws SQLException {
    int at = setStep(statement, 1, task);
    statement.setString(at, operation);
    statement.setLong(at + 1, task.fence());
    statement.setString(at + 2, state);
    statement.setLong(at + 3, startedUs(task));
    return at + 4;
  }

  private static boolean compensates(Task task) {
    return task.operation() == Operation.COMPENSATION;
  }

  @Override
  public Entered enter(Task task, Connection connection) throws SQLException {
    if (compensates(task)) {
      try (PreparedStatement block = connection.prepareStatement(BLOCK_ACTION)) {
        setRow(block, task, "ACTION", "BLOCKED");
        block.executeUpdate();
      }
    }
    try (PreparedStatement claim = connection.prepareStatement(CLAIM)) {
      int at = setRow(claim, task, operationOf(task), "ENTERED");
      claim.setLong(at, task.fence());
      claim.setLong(at + 1, task.fence());
      claim.executeUpdate();
    }
    return ask(task, connection);
  }

  private Entered ask(Task task, Connection connection) throws SQLException {
    String sql = compensates(task) ? ASK_COMPENSATION : ASK_ACTION;
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      statement.setLong(1, task.fence());
      if (compensates(task)) {
        statement.setBoolean(2, evenWithoutAction);
      }
      setStep(statement, compensates(task) ? 3 : 2, task);
      try (ResultSet row = statement.executeQuery()) {
        if (!row.next()) {
          throw new SQLException("the guard gave no answer");
        }
        return Entered.of(row.getString(1), row.getBytes(2));
      }
    }
  }

  @Override
  public void done(Task task, Connection connection, ByteString output) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(DONE)) {
      statement.setBytes(1, bytes(output));
      int at = setStep(statement, 2, task);
      statement.setString(at, operationOf(task));
      changeOne(statement);
    }
  }

  /** Without the row of this transaction's enter these statements do nothing. */
  private static void changeOne(PreparedStatement statement) throws SQLException {
    if (statement.executeUpdate() != 1) {
      throw new SQLException("the guard was not entered in this transaction");
    }
  }

  @Override
  public Entered noEffect(Task task, Connection connection) throws SQLException {
    Entered entered = enter(task, connection);
    if (entered.answer() == Answer.EMPTY) {
      done(task, connection, null);
    }
    if (entered.answer() != Answer.PROCEED) {
      return entered;
    }
    try (PreparedStatement statement = connection.prepareStatement(NO_EFFECT)) {
      statement.setString(setStep(statement, 1, task), operationOf(task));
      changeOne(statement);
    }
    if (compensates(task)) {
      try (PreparedStatement statement = connection.prepareStatement(UNBLOCK)) {
        setStep(statement, 1, task);
        statement.executeUpdate();
      }
    }
    return new Entered(Answer.RECORDED, ByteString.EMPTY);
  }

  @Override
  String codeOf(SQLException error) {
    String state = error.getSQLState();
    boolean ofServer =
        error.getErrorCode() > 0 && (state == null || !state.startsWith("08"));
    return ofServer ? "GUARD_MYSQL_" + error.getErrorCode() : "GUARD_CONNECTION";
  }

  @Override
  boolean hasRolledBack(SQLException error) {
    return error.getErrorCode() == DEADLOCK
        || error.getErrorCode() == ROLLED_BACK_DURING_COMMIT;
  }

  @Override
  String warningOf(Connection connection) {
    return null;
  }

  @Override
  boolean emptyNeedsDone() {
    return true;
  }
}
