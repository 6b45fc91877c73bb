package dev.sagad.guard;

import java.sql.Connection;
import java.sql.SQLException;

/**
 * Is a transaction open on a connection? JDBC does not say; the usual drivers do, each in its own way,
 * and they are looked at by name, so that none of them is needed here.
 */
final class Transactions {

  enum State {
    OPEN,
    IDLE,
    /** Another driver, or one that has changed. */
    NOT_KNOWN
  }

  private static final int MARIADB_IN_TRANSACTION = 1;

  private Transactions() {}

  static State state(Connection connection) throws SQLException {
    State state = ofPostgresql(connection);
    if (state == State.NOT_KNOWN) {
      state = ofMariadb(connection);
    }
    return state == State.NOT_KNOWN ? ofMysql(connection) : state;
  }

  /** The driver's own object behind a pool's; null: it is not of that driver. */
  private static Object unwrap(Connection connection, String type) throws SQLException {
    ClassLoader[] loaders = {
      connection.getClass().getClassLoader(), Thread.currentThread().getContextClassLoader()
    };
    for (ClassLoader loader : loaders) {
      try {
        Class<?> of = Class.forName(type, false, loader);
        if (connection.isWrapperFor(of)) {
          return connection.unwrap(of);
        }
      } catch (ClassNotFoundException e) {
        continue; // that driver is not here
      }
    }
    return null;
  }

  private static Object call(Object target, String type, String method)
      throws ReflectiveOperationException {
    return Class.forName(type, false, target.getClass().getClassLoader())
        .getMethod(method)
        .invoke(target);
  }

  private static State of(boolean open) {
    return open ? State.OPEN : State.IDLE;
  }

  private static State ofPostgresql(Connection connection) throws SQLException {
    String type = "org.postgresql.core.BaseConnection";
    Object own = unwrap(connection, type);
    if (own == null) {
      return State.NOT_KNOWN;
    }
    try {
      return of(!"IDLE".equals(call(own, type, "getTransactionState").toString()));
    } catch (ReflectiveOperationException e) {
      return State.NOT_KNOWN;
    }
  }

  private static State ofMariadb(Connection connection) throws SQLException {
    Object own = unwrap(connection, "org.mariadb.jdbc.Connection");
    if (own == null) {
      return State.NOT_KNOWN;
    }
    try {
      Object context = call(own, "org.mariadb.jdbc.Connection", "getContext");
      Object status = call(context, "org.mariadb.jdbc.client.Context", "getServerStatus");
      return of(((Number) status).intValue() % 2 == MARIADB_IN_TRANSACTION);
    } catch (ReflectiveOperationException e) {
      return State.NOT_KNOWN;
    }
  }

  private static State ofMysql(Connection connection) throws SQLException {
    Object own = unwrap(connection, "com.mysql.cj.jdbc.JdbcConnection");
    if (own == null) {
      return State.NOT_KNOWN;
    }
    try {
      Object session = call(own, "com.mysql.cj.MysqlConnection", "getSession");
      Object server = call(session, "com.mysql.cj.Session", "getServerSession");
      Object open = call(server, "com.mysql.cj.protocol.ServerSession", "inTransactionOnServer");
      return of((Boolean) open);
    } catch (ReflectiveOperationException e) {
      return State.NOT_KNOWN;
    }
  }
}
