package dev.sagad.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import com.google.protobuf.Timestamp;
import dev.sagad.v1.Ack;
import dev.sagad.v1.Acks;
import dev.sagad.v1.CancelHint;
import dev.sagad.v1.Credit;
import dev.sagad.v1.DrainRequested;
import dev.sagad.v1.Extended;
import dev.sagad.v1.OperationKind;
import dev.sagad.v1.ServerMessage;
import dev.sagad.v1.Tasks;
import dev.sagad.v1.Tick;
import dev.sagad.v1.Welcome;
import dev.sagad.v1.WorkerMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Plays the turns of a stream with the time in hand. */
class PoolTest {

  private static final int LEASE_MS = 30_000;
  private static final int ATTEMPT_MS = 60_000;
  private static final Outcome DONE =
      Outcome.success(dev.sagad.v1.Outcome.OUTCOME_DONE, ByteString.copyFromUtf8("x"), false);

  private final Pool pool = new Pool("w", Integer.MAX_VALUE, 5000, new SplittableRandom(7));
  private long now = 1_000_000;

  private static ByteString uid(long fence) {
    byte[] bytes = new byte[16];
    bytes[0] = (byte) fence;
    bytes[1] = (byte) (fence >> 8);
    return ByteString.copyFrom(bytes);
  }

  private static Duration milliseconds(long ms) {
    return Duration.newBuilder().setSeconds(ms / 1000).setNanos((int) (ms % 1000) * 1_000_000).build();
  }

  private static dev.sagad.v1.Task.Builder task(String handler, long fence) {
    return dev.sagad.v1.Task.newBuilder()
        .setSagaUid(uid(fence))
        .setFence(fence)
        .setHandler(handler)
        .setOperation(OperationKind.OPERATION_KIND_ACTION)
        .setSagaStartTime(Timestamp.newBuilder().setSeconds(1))
        .setLease(milliseconds(LEASE_MS))
        .setAttemptRemaining(milliseconds(ATTEMPT_MS));
  }

  private Session session() {
    return new Session(pool);
  }

  private List<WorkerMessage> say(Session session) {
    List<WorkerMessage> said = new ArrayList<>();
    for (WorkerMessage m = session.next(now); m != null; m = session.next(now)) {
      said.add(m);
    }
    return said;
  }

  private void hear(Session session, ServerMessage.Builder message) throws Session.Malformed {
    session.receive(message.build(), now, now);
  }

  private void welcome(Session session) throws Session.Malformed {
    hear(session, ServerMessage.newBuilder().setWelcome(Welcome.getDefaultInstance()));
  }

  private Session online() throws Session.Malformed {
    Session session = session();
    session.opened(now);
    say(session);
    welcome(session);
    return session;
  }

  private void send(Session session, dev.sagad.v1.Task.Builder task) throws Session.Malformed {
    hear(session, ServerMessage.newBuilder().setTasks(Tasks.newBuilder().addTasks(task)));
  }

  private void ack(Session session, long fence, Ack.Result result) throws Session.Malformed {
    Ack ack = Ack.newBuilder().setSagaUid(uid(fence)).setFence(fence).setResult(result).build();
    hear(session, ServerMessage.newBuilder().setAcks(Acks.newBuilder().addAcks(ack)));
  }

  private void extended(Session session, long fence, long ms) throws Session.Malformed {
    Extended.Lease.Builder lease =
        Extended.Lease.newBuilder().setSagaUid(uid(fence)).setFence(fence).setLease(milliseconds(ms));
    hear(session, ServerMessage.newBuilder().setExtended(Extended.newBuilder().addLeases(lease)));
  }

  private static List<WorkerMessage> only(
      List<WorkerMessage> said, WorkerMessage.CommandCase command) {
    return said.stream().filter(m -> m.getCommandCase() == command).toList();
  }

  private static long credit(List<WorkerMessage> said, String handler) {
    return only(said, WorkerMessage.CommandCase.CREDIT).stream()
        .flatMap(m -> m.getCredit().getHandlersList().stream())
        .filter(c -> c.getHandler().equals(handler))
        .mapToLong(Credit.PerHandler::getTotal)
        .max()
        .orElse(-1);
  }

  @Test
  void helloComesFirstThenCreditForEverySlot() {
    pool.handle("a", 4, this);
    pool.handle("b", 1, this);
    Session session = session();
    session.opened(now);
    List<WorkerMessage> said = say(session);
    assertEquals(WorkerMessage.CommandCase.HELLO, said.get(0).getCommandCase());
    assertTrue(said.get(0).getHello().getOnlyStream());
    assertEquals(2, said.get(0).getHello().getHandlersCount());
    assertEquals(32, said.get(0).getHello().getInstance().length());
    assertEquals(4, credit(said, "a"));
    assertEquals(1, credit(said, "b"));
  }

  @Test
  void slotIsOfferedAgainWhenTheReportIsSentNotWhenItIsAcked() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1));
    assertEquals(List.of(), say(session));
    pool.finish(pool.take(now), DONE, now);
    List<WorkerMessage> said = say(session);
    assertEquals(1, only(said, WorkerMessage.CommandCase.REPORT).size());
    assertEquals(2, credit(said, "a"));
    ack(session, 1, Ack.Result.RESULT_ACCEPTED);
    assertEquals(-1, credit(say(session), "a"));
    assertEquals(1, pool.stats().reportsAccepted());
  }

  @Test
  void moreTasksThanCreditEndTheStream() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1));
    assertThrows(Session.Malformed.class, () -> send(session, task("a", 2)));
  }

  @Test
  void malformedMessagesAreRefused() throws Exception {
    pool.handle("a", 9, this);
    Session session = online();
    List<dev.sagad.v1.Task.Builder> bad =
        List.of(
            task("nobody", 1),
            task("a", 0),
            task("a", -1),
            task("a", 1).setSagaUid(ByteString.copyFromUtf8("short")),
            task("a", 1).clearLease(),
            task("a", 1).setLease(Duration.newBuilder().setSeconds(-1)),
            task("a", 1).setLease(Duration.newBuilder().setNanos(2_000_000_000)),
            task("a", 1).clearAttemptRemaining(),
            task("a", 1).clearSagaStartTime(),
            task("a", 1).setSendBefore(Timestamp.newBuilder().setSeconds(Long.MAX_VALUE / 2)),
            task("a", 1).setOperationValue(99));
    for (dev.sagad.v1.Task.Builder task : bad) {
      assertThrows(Session.Malformed.class, () -> send(session, task), task::toString);
    }
    send(session, task("a", 1));
    pool.finish(pool.take(now), DONE, now);
    say(session);
    assertThrows(
        Session.Malformed.class, () -> ack(session, 1, Ack.Result.RESULT_UNSPECIFIED));
    hear(session, ServerMessage.newBuilder()); // a word of a newer server
  }

  @Test
  void duplicateDeliveryIsNotRunTwice() throws Exception {
    pool.handle("a", 2, this);
    Session session = online();
    send(session, task("a", 1));
    send(session, task("a", 1));
    assertNotNull(pool.take(now));
    assertNull(pool.take(now));
  }

  @ParameterizedTest
  @CsvSource({"3,1,1", "1,3,1", "2,2,2", "5,4,4"})
  void neverMoreRunThanMaximumAndConcurrency(int max, int concurrency, int running)
      throws Exception {
    Pool small = new Pool("w", concurrency, 5000, new SplittableRandom(7));
    small.handle("a", max, this);
    Session session = new Session(small);
    session.opened(now);
    say(session);
    welcome(session);
    for (int i = 1; i <= max; i++) {
      send(session, task("a", i));
    }
    List<Held> taken = new ArrayList<>();
    for (Held held = small.take(now); held != null; held = small.take(now)) {
      taken.add(held);
    }
    assertEquals(running, taken.size());
    small.finish(taken.get(0), DONE, now);
    assertEquals(max > running, small.take(now) != null);
  }

  @Test
  void leasesAreExtendedEveryThirdAndCountedFromTheQuestion() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1));
    Held held = pool.take(now);
    now += LEASE_MS / 3 - 1;
    assertEquals(0, only(say(session), WorkerMessage.CommandCase.EXTEND).size());
    now += 1;
    assertEquals(1, only(say(session), WorkerMessage.CommandCase.EXTEND).size());
    long asked = now;
    now += 700; // the answer takes its time
    extended(session, 1, LEASE_MS);
    assertEquals(asked + LEASE_MS * 8 / 10, held.leaseEndMs());
    extended(session, 1, LEASE_MS * 2L); // nobody asked
    assertEquals(asked + LEASE_MS * 8 / 10, held.leaseEndMs());
  }

  @Test
  void nothingIsExtendedAfterTheAttempt() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1).setAttemptRemaining(milliseconds(5000)));
    pool.take(now);
    now += LEASE_MS / 3;
    assertEquals(0, only(say(session), WorkerMessage.CommandCase.EXTEND).size());
  }

  @ParameterizedTest
  @CsvSource({"30000,60000,24000", "30000,20000,20000", "1500,60000,1200"})
  void handlersAreToldAtFourFifthsOfTheLease(int lease, int attempt, int end) throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(
        session,
        task("a", 1).setLease(milliseconds(lease)).setAttemptRemaining(milliseconds(attempt)));
    Held held = pool.take(now);
    now += end - 1;
    assertEquals(List.of(), pool.notices(now));
    now += 1;
    assertEquals(List.of(new Pool.Notice(held, Stop.LOST)), pool.notices(now));
    assertEquals(List.of(), pool.notices(now));
  }

  @Test
  void reasonsToStopAreToldOnceTheGreaterLast() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1));
    Held held = pool.take(now);
    pool.drain(now);
    assertEquals(List.of(new Pool.Notice(held, Stop.DRAINING)), pool.notices(now));
    CancelHint.Builder hint = CancelHint.newBuilder().setSagaUid(uid(1)).setFence(1);
    hear(session, ServerMessage.newBuilder().setCancelHint(hint));
    assertEquals(List.of(new Pool.Notice(held, Stop.CANCELLED)), pool.notices(now));
    extended(session, 1, 0);
    assertEquals(List.of(new Pool.Notice(held, Stop.LOST)), pool.notices(now));
    assertEquals(1, pool.stats().leasesLost());
  }

  @Test
  void taskThatWaitedForTooLongIsGivenBackUnseen() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1));
    now += LEASE_MS;
    assertNull(pool.take(now));
    List<WorkerMessage> said = say(session);
    assertEquals(1, only(said, WorkerMessage.CommandCase.RELEASE).size());
    assertEquals(2, credit(said, "a"));
  }

  @Test
  void lostStreamDropsWhatNobodySawAndResendsReports() throws Exception {
    pool.handle("a", 3, this);
    Session session = online();
    for (int i = 1; i <= 3; i++) {
      send(session, task("a", i));
    }
    pool.finish(pool.take(now), DONE, now);
    assertEquals(1, only(say(session), WorkerMessage.CommandCase.REPORT).size());
    assertNotNull(pool.take(now)); // 2 runs, 3 waits
    session.lost(now);
    assertEquals(List.of(), say(session));
    assertTrue(session.reconnectMs >= now + 100 && session.reconnectMs <= now + 200);
    now = session.reconnectMs;
    session.opened(now);
    List<WorkerMessage> said = say(session);
    List<Long> held =
        said.get(0).getHello().getHeldList().stream().map(lease -> lease.getFence()).toList();
    assertEquals(List.of(2L, 1L), held);
    assertEquals(1, only(said, WorkerMessage.CommandCase.REPORT).size());
    assertEquals(1, only(said, WorkerMessage.CommandCase.EXTEND).size());
    assertEquals(2, credit(said, "a"), "the slot of the one that runs is not offered");
  }

  @Test
  void backOffGrowsToTwoSecondsAndStartsAnewAfterASteadyStream() throws Exception {
    pool.handle("a", 1, this);
    Session session = session();
    for (int i = 0; i < 50; i++) {
      session.opened(now);
      session.lost(now);
      long most = Math.min(2000, 200L << Math.min(i, 10));
      assertTrue(session.reconnectMs - now >= 100 && session.reconnectMs - now <= most);
    }
    session.opened(now);
    welcome(session);
    now += Session.STEADY_MS;
    session.lost(now);
    assertTrue(session.reconnectMs - now <= 200);
  }

  @Test
  void silentStreamIsOver() throws Exception {
    pool.handle("a", 1, this);
    Session session = session();
    session.opened(now);
    now += 9_999;
    assertFalse(session.isOver(now));
    now += 1;
    assertTrue(session.isOver(now));
    session.lost(now);
    session.opened(now);
    welcome(session);
    now += 34_999;
    assertFalse(session.isOver(now));
    hear(session, ServerMessage.newBuilder().setTick(Tick.getDefaultInstance()));
    now += 35_000;
    assertTrue(session.isOver(now));
  }

  @Test
  void idleWorkerRepeatsItsCredit() throws Exception {
    pool.handle("a", 4, this);
    Session session = online();
    now += 9_999;
    assertEquals(List.of(), say(session));
    now += 1;
    assertEquals(4, credit(say(session), "a"));
  }

  @Test
  void drainSaysSoGivesBackFinishesAndWaitsForAcks() throws Exception {
    pool.handle("a", 2, this);
    Session session = online();
    send(session, task("a", 1));
    send(session, task("a", 2));
    Held running = pool.take(now);
    pool.drain(now);
    List<WorkerMessage> said = say(session);
    assertEquals(WorkerMessage.CommandCase.DRAIN, said.get(0).getCommandCase());
    assertEquals(2, only(said, WorkerMessage.CommandCase.RELEASE).get(0).getRelease()
        .getLeases(0).getFence());
    assertEquals(-1, credit(said, "a"));
    now += 60_000;
    assertFalse(pool.isDrained(now), "however long a handler takes");
    pool.finish(running, DONE, now);
    say(session);
    assertFalse(pool.isDrained(now));
    ack(session, 1, Ack.Result.RESULT_ACCEPTED);
    assertTrue(pool.isDrained(now));
  }

  @Test
  void drainEndsWithoutAcksWhenItsTimeIsOver() throws Exception {
    pool.handle("a", 1, this);
    Session session = online();
    send(session, task("a", 1));
    Held running = pool.take(now);
    pool.drain(now);
    now += 3000;
    pool.finish(running, DONE, now);
    say(session);
    now += 4999;
    assertFalse(pool.isDrained(now));
    now += 1;
    assertTrue(pool.isDrained(now));
  }

  @Test
  void serverThatGoesAwayGetsNoCreditAndIsLeftWhenAllIsSettled() throws Exception {
    pool.handle("a", 2, this);
    Session session = online();
    send(session, task("a", 1));
    send(session, task("a", 2));
    Held running = pool.take(now);
    DrainRequested.Builder drain = DrainRequested.newBuilder().setGrace(milliseconds(4000));
    hear(session, ServerMessage.newBuilder().setDrainRequested(drain));
    List<WorkerMessage> said = say(session);
    assertEquals(1, only(said, WorkerMessage.CommandCase.RELEASE).size());
    assertEquals(-1, credit(said, "a"));
    assertFalse(session.isOver(now));
    pool.finish(running, DONE, now);
    say(session);
    assertFalse(session.isOver(now), "the ack is missing");
    ack(session, 1, Ack.Result.RESULT_DUPLICATE);
    assertTrue(session.isOver(now));
  }

  @Test
  void anotherStreamSpeaksForTheTasksOfADeadOne() throws Exception {
    pool.handle("a", 2, this);
    Session first = session();
    Session second = session();
    for (Session session : List.of(first, second)) {
      session.opened(now);
      say(session);
      welcome(session);
    }
    say(second);
    assertEquals(0, second.credit(pool.handler("a")).granted, "the first has them");
    now += 100; // every stream is offered the free slots
    assertEquals(2, credit(say(second), "a"));
    send(first, task("a", 1));
    send(first, task("a", 2));
    Held running = pool.take(now);
    first.lost(now);
    List<WorkerMessage> said = say(second);
    assertEquals(1, only(said, WorkerMessage.CommandCase.EXTEND).size());
    assertEquals(2, only(said, WorkerMessage.CommandCase.RELEASE).get(0).getRelease()
        .getLeases(0).getFence());
    pool.finish(running, DONE, now);
    assertEquals(1, only(say(second), WorkerMessage.CommandCase.REPORT).size());
    now += 2000;
    first.opened(now);
    List<WorkerMessage> hello = say(first);
    assertFalse(hello.get(0).getHello().getOnlyStream());
    assertEquals(1, hello.get(0).getHello().getHeldCount());
  }

  @Test
  void whatNodesUsedTheSameSlotForIsGivenBackAfterASecond() throws Exception {
    pool.handle("a", 1, this);
    Session first = session();
    Session second = session();
    for (Session session : List.of(first, second)) {
      session.opened(now);
      say(session);
      welcome(session);
    }
    say(first);
    say(second);
    now += 200;
    say(first);
    say(second);
    send(first, task("a", 1));
    send(second, task("a", 2));
    assertNotNull(pool.take(now));
    assertNull(pool.take(now));
    now += 1000;
    assertEquals(1, only(say(second), WorkerMessage.CommandCase.RELEASE).size());
  }

  @Test
  void manyUnackedReportsStopTheCredit() throws Exception {
    pool.handle("a", 10_000, this);
    Session session = online();
    for (int i = 1; i <= Speech.UNACKED_MAX; i++) {
      send(session, task("a", i));
    }
    for (Held held = pool.take(now); held != null; held = pool.take(now)) {
      pool.finish(held, DONE, now);
    }
    List<WorkerMessage> said = say(session);
    assertEquals(Speech.UNACKED_MAX / Speech.REPORTS,
        only(said, WorkerMessage.CommandCase.REPORT).size());
    now += Speech.IDLE_MS;
    assertEquals(10_000, credit(say(session), "a"), "repeated, and no more of it");
    ack(session, 1, Ack.Result.RESULT_ACCEPTED);
    now += Speech.IDLE_MS;
    assertEquals(10_000 + Speech.UNACKED_MAX, credit(say(session), "a"));
  }

  @ParameterizedTest
  @CsvSource(value = {"'',1", "a b,1", "ok,0", "ok,10001"})
  void badHandlersAreRefused(String name, int max) {
    assertThrows(IllegalArgumentException.class, () -> pool.handle(name, max, this));
  }
}
