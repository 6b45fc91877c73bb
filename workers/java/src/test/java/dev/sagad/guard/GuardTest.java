package dev.sagad.guard;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import dev.sagad.sagatest.TestTask;
import dev.sagad.worker.Outcome;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Task;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.UUID;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.support.TransactionTemplate;

/** The guard on a real server: what the effect's own table holds, and what is reported. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(120)
abstract class GuardTest {

  static final ByteString RECEIPT = ByteString.copyFromUtf8("receipt 4711");

  private final Guard guard;
  private Databases database;
  private Connection connection;
  private String sagaId;

  GuardTest(Guard guard) {
    this.guard = guard;
  }

  abstract Databases start() throws Exception;

  @BeforeAll
  void startDatabase() throws Exception {
    database = start();
    try (Connection admin = database.connect()) {
      admin.createStatement().execute("CREATE TABLE effects (saga_id varchar(80), what varchar(20))");
    }
  }

  @AfterAll
  void stopDatabase() throws Exception {
    if (database != null) {
      database.close();
    }
  }

  @BeforeEach
  void connect() throws SQLException {
    connection = database.connect();
    sagaId = "order-" + UUID.randomUUID();
  }

  @AfterEach
  void disconnect() throws SQLException {
    connection.close();
  }

  private TestTask action() {
    return TestTask.action("bank.debit").saga("settlement", sagaId, "debit");
  }

  private TestTask compensation() {
    return TestTask.compensation("bank.refund", RECEIPT).saga("settlement", sagaId, "debit");
  }

  private ByteString effect(Connection on, String what) throws SQLException {
    try (var insert = on.prepareStatement("INSERT INTO effects VALUES (?, ?)")) {
      insert.setString(1, sagaId);
      insert.setString(2, what);
      insert.executeUpdate();
    }
    return RECEIPT;
  }

  private Outcome run(TestTask test, Guard.Body body) {
    return run(guard, test, body);
  }

  private Outcome run(Guard with, TestTask test, Guard.Body body) {
    return test.run(task -> with.run(task, connection, body));
  }

  private int effects() throws SQLException {
    try (Connection fresh = database.connect();
        var select = fresh.prepareStatement("SELECT count(*) FROM effects WHERE saga_id = ?")) {
      select.setString(1, sagaId);
      ResultSet row = select.executeQuery();
      row.next();
      return row.getInt(1);
    }
  }

  private static void assertOutcome(String kind, String code, Outcome outcome) {
    assertEquals("OUTCOME_" + kind, outcome.kind().name(), outcome::toString);
    assertEquals(code, outcome.code(), outcome::toString);
  }

  @Test
  void effectHappensOnce() throws Exception {
    Outcome first = run(action(), on -> effect(on, "debit"));
    assertOutcome("DONE", "", first);
    assertEquals(RECEIPT, first.output());
    Outcome again = run(action(), on -> effect(on, "debit"));
    assertOutcome("ALREADY_DONE", "", again);
    assertTrue(again.ours());
    assertEquals(RECEIPT, again.output());
    assertEquals(1, effects());
    assertTrue(connection.getAutoCommit());
  }

  @Test
  void compensationComesOnceAndRefusesTheLateAction() throws Exception {
    run(action(), on -> effect(on, "debit"));
    assertOutcome("DONE", "", run(compensation(), on -> effect(on, "refund")));
    assertOutcome("ALREADY_DONE", "", run(compensation(), on -> effect(on, "refund")));
    assertOutcome("REJECTED", "GUARD_REFUSED", run(action(), on -> effect(on, "debit")));
    assertEquals(2, effects());
  }

  @Test
  void compensationOfNothingIsEmptyAndRefusesTheLateAction() throws Exception {
    Outcome empty = run(compensation(), on -> effect(on, "refund"));
    assertOutcome("DONE", "", empty);
    assertEquals(ByteString.EMPTY, empty.output());
    assertOutcome("REJECTED", "GUARD_REFUSED", run(action(), on -> effect(on, "debit")));
    assertEquals(0, effects());
  }

  @Test
  void evenWithoutActionRunsTheCompensation() throws Exception {
    Guard even = guard.evenWithoutAction();
    assertOutcome("DONE", "", run(even, compensation(), on -> effect(on, "refund")));
    assertEquals(1, effects());
  }

  @Test
  void businessNoIsRolledBackAndRemembered() throws Exception {
    TestTask older = action();
    Outcome no =
        run(
            action(),
            on -> {
              effect(on, "debit");
              throw new Rejected("NO_FUNDS", "3 cents short");
            });
    assertOutcome("REJECTED", "NO_FUNDS", no);
    assertOutcome("RETRY", "GUARD_STALE", run(older, on -> effect(on, "debit")));
    assertEquals(0, effects());
    assertOutcome("DONE", "", run(compensation(), on -> effect(on, "refund")));
    assertEquals(0, effects(), "nothing to give back");
  }

  @Test
  void failedBodyIsRolledBack() throws Exception {
    Outcome sql =
        run(
            action(),
            on -> {
              effect(on, "debit");
              on.createStatement().execute("SELECT * FROM nothing_here");
              return null;
            });
    assertEquals("OUTCOME_RETRY", sql.kind().name());
    assertTrue(sql.code().startsWith("GUARD_SQLSTATE_42") || sql.code().equals("GUARD_MYSQL_1146"),
        sql::code);
    Outcome bug =
        run(
            action(),
            on -> {
              effect(on, "debit");
              throw new IllegalStateException("a bug");
            });
    assertOutcome("RETRY", "GUARD_BODY_FAILED", bug);
    assertEquals(0, effects());
    assertOutcome("DONE", "", run(action(), on -> effect(on, "debit")));
  }

  @Test
  void bodyThatEndsTheTransactionIsFoundOut() throws Exception {
    Outcome outcome =
        run(
            action(),
            on -> {
              effect(on, "debit");
              on.rollback();
              return null;
            });
    assertOutcome("UNKNOWN", "GUARD_BODY_COMMITTED", outcome);
  }

  @Test
  void autocommitOffIsFineOutsideOfATransactionAlone() throws Exception {
    connection.setAutoCommit(false);
    assertOutcome("DONE", "", run(action(), on -> effect(on, "debit")));
    assertFalse(connection.getAutoCommit());
    effect(connection, "mine");
    Outcome busy = run(compensation(), on -> effect(on, "refund"));
    assertOutcome("RETRY", "GUARD_CONNECTION_IN_USE", busy);
    connection.commit();
    assertEquals(2, effects(), "what was open was left as it was");
  }

  @Test
  void probesAreNotGuarded() {
    Outcome outcome = run(TestTask.probe("p"), on -> RECEIPT);
    assertOutcome("UNKNOWN", "GUARD_PROBE", outcome);
  }

  @Test
  void lostConnectionBeforeCommitIsRetry() throws Exception {
    Outcome outcome =
        run(
            action(),
            on -> {
              effect(on, "debit");
              on.abort(Runnable::run);
              return RECEIPT;
            });
    assertOutcome("RETRY", "GUARD_CONNECTION", outcome);
    assertEquals(0, effects());
  }

  @Test
  void partsInATransactionOfOnesOwn() throws Exception {
    Task task = action().build();
    connection.setAutoCommit(false);
    assertEquals(Answer.PROCEED, guard.enter(task, connection).answer());
    effect(connection, "debit");
    guard.done(task, connection, RECEIPT);
    connection.commit();
    Entered again = guard.enter(task, connection);
    connection.commit();
    assertEquals(Answer.DUPLICATE, again.answer());
    assertEquals(RECEIPT, again.output());
    assertThrows(SQLException.class, () -> guard.done(action().build(), connection, RECEIPT));
    connection.rollback();
  }

  /* Spring's. */

  private DriverManagerDataSource dataSource() {
    return new DriverManagerDataSource(database.url());
  }

  private Outcome spring(TestTask test, SpringGuard.Body body) {
    DriverManagerDataSource source = dataSource();
    SpringGuard spring =
        new SpringGuard(guard, source, new DataSourceTransactionManager(source));
    return test.run(task -> spring.run(task, body));
  }

  @Test
  void springsTransactionHoldsGuardAndEffect() throws Exception {
    DriverManagerDataSource source = dataSource();
    SpringGuard spring =
        new SpringGuard(guard, source, new DataSourceTransactionManager(source));
    JdbcTemplate jdbc = new JdbcTemplate(source);
    SpringGuard.Body debit =
        () -> {
          jdbc.update("INSERT INTO effects VALUES (?, 'debit')", sagaId);
          return RECEIPT;
        };
    assertOutcome("DONE", "", action().run(task -> spring.run(task, debit)));
    Outcome again = action().run(task -> spring.run(task, debit));
    assertOutcome("ALREADY_DONE", "", again);
    assertEquals(RECEIPT, again.output());
    assertEquals(1, effects());
    assertOutcome(
        "RETRY",
        "GUARD_BODY_FAILED",
        compensation()
            .run(
                task ->
                    spring.run(
                        task,
                        () -> {
                          jdbc.update("INSERT INTO effects VALUES (?, 'refund')", sagaId);
                          throw new IllegalStateException("a bug");
                        })));
    assertEquals(1, effects());
    assertOutcome("DONE", "", compensation().run(task -> spring.run(task, debit)));
    assertOutcome("REJECTED", "GUARD_REFUSED", action().run(task -> spring.run(task, debit)));
    assertEquals(2, effects());
  }

  @Test
  void springsBusinessNoIsRemembered() throws Exception {
    TestTask older = action();
    SpringGuard.Body no =
        () -> {
          throw new Rejected("NO_FUNDS", "");
        };
    assertOutcome("REJECTED", "NO_FUNDS", spring(action(), no));
    assertOutcome("RETRY", "GUARD_STALE", spring(older, () -> RECEIPT));
    assertOutcome("DONE", "", spring(compensation(), () -> RECEIPT));
  }

  @Test
  void takesPartInAnOpenTransactionOfSprings() throws Exception {
    DriverManagerDataSource source = dataSource();
    var manager = new DataSourceTransactionManager(source);
    SpringGuard spring = new SpringGuard(guard, source, manager);
    TransactionTemplate template = new TransactionTemplate(manager);
    Task task = action().build();
    assertThrows(IllegalStateException.class, () -> spring.enter(task));
    assertThrows(
        IllegalStateException.class, () -> template.execute(status -> entered(spring, task)));
    Answer answer =
        template.execute(
            status -> {
              Answer entered = entered(spring, task);
              try {
                spring.done(task, RECEIPT);
              } catch (SQLException e) {
                throw new IllegalStateException(e);
              }
              return entered;
            });
    assertEquals(Answer.PROCEED, answer, "what was not done has left nothing");
    Outcome inside =
        template.execute(status -> action().run(other -> spring.run(other, () -> RECEIPT)));
    assertOutcome("RETRY", "GUARD_CONNECTION_IN_USE", inside);
  }

  private static Answer entered(SpringGuard spring, Task task) {
    try {
      return spring.enter(task).answer();
    } catch (SQLException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void guardedOutcomesOfAnswers() {
    assertNull(new Entered(Answer.PROCEED, ByteString.EMPTY).outcome());
    assertThrows(Retry.class, () -> Entered.of("SOMETHING_NEW", null));
  }
}
