package dev.sagad.guard;

import com.google.protobuf.ByteString;
import dev.sagad.worker.Task;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.util.Set;

/** The functions of sql/guard/postgresql.sql. */
final class PostgresqlGuard extends Guard {

  private static final String CALL =
      "SELECT answer, output FROM saga_guard.%s(?::text, ?::text, ?::text, ?::integer, ?::text,"
          + " ?::text, ?::bigint, timestamptz 'epoch' + ?::bigint * interval '1 microsecond',"
          + " ?::boolean)";
  private static final String ENTER = String.format(CALL, "enter");
  private static final String NO_EFFECT = String.format(CALL, "no_effect");
  private static final String DONE =
      "SELECT saga_guard.done(?::text, ?::text, ?::text, ?::integer, ?::text, ?::text, ?::bytea)";

  /**
   * Classes of SQLSTATE that a server says in place of a commit, on a connection that lives: data,
   * constraints, a transaction that had failed, deadlock and serialization, access, limits, done was
   * missing, a trigger. 57 is not among them: it may have come when the server went down.
   */
  private static final Set<String> ROLLED_BACK =
      Set.of("22", "23", "25", "40", "42", "54", "55", "P0");

  PostgresqlGuard(boolean evenWithoutAction) {
    super(evenWithoutAction);
  }

  @Override
  public Guard evenWithoutAction() {
    return new PostgresqlGuard(true);
  }

  private static void setKey(PreparedStatement statement, Task task) throws SQLException {
    statement.setString(1, task.namespace());
    statement.setString(2, task.definition());
    statement.setString(3, task.sagaId());
    statement.setInt(4, task.run());
    statement.setString(5, task.step());
    statement.setString(6, operationOf(task));
  }

  private Entered ask(String sql, Task task, Connection connection) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(sql)) {
      setKey(statement, task);
      statement.setLong(7, task.fence());
      statement.setLong(8, startedUs(task));
      statement.setBoolean(9, evenWithoutAction);
      try (ResultSet row = statement.executeQuery()) {
        if (!row.next()) {
          throw new SQLException("the guard gave no answer");
        }
        return Entered.of(row.getString(1), row.getBytes(2));
      }
    }
  }

  @Override
  public Entered enter(Task task, Connection connection) throws SQLException {
    return ask(ENTER, task, connection);
  }

  @Override
  public void done(Task task, Connection connection, ByteString output) throws SQLException {
    try (PreparedStatement statement = connection.prepareStatement(DONE)) {
      setKey(statement, task);
      statement.setBytes(7, bytes(output));
      statement.execute();
    }
  }

  @Override
  public Entered noEffect(Task task, Connection connection) throws SQLException {
    return ask(NO_EFFECT, task, connection);
  }

  @Override
  String codeOf(SQLException error) {
    String state = error.getSQLState();
    boolean ofServer = state != null && state.length() == 5 && !state.startsWith("08");
    return ofServer ? "GUARD_SQLSTATE_" + state : "GUARD_CONNECTION";
  }

  @Override
  boolean hasRolledBack(SQLException error) {
    String state = error.getSQLState();
    return state != null
        && state.length() == 5
        && !state.equals("40003") // statement completion unknown
        && ROLLED_BACK.contains(state.substring(0, 2));
  }

  /** "committed locally", when a synchronous standby did not answer, is a WARNING, and not a yes. */
  @Override
  String warningOf(Connection connection) throws SQLException {
    for (SQLWarning at = connection.getWarnings(); at != null; at = at.getNextWarning()) {
      if (at.getSQLState() != null && at.getSQLState().startsWith("01")) {
        return at.getMessage();
      }
    }
    return null;
  }

  @Override
  boolean emptyNeedsDone() {
    return false;
  }
}
