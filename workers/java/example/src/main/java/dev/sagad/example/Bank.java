package dev.sagad.example;

import bank.v1.SettlementOuterClass.LedgerEntry;
import bank.v1.SettlementOuterClass.LedgerRequest;
import bank.v1.SettlementOuterClass.Payment;
import bank.v1.SettlementOuterClass.Receipt;
import bank.v1.SettlementOuterClass.RefundRequest;
import bank.v1.SettlementOuterClass.ReverseRequest;
import com.google.protobuf.ByteString;
import com.google.protobuf.Empty;
import com.google.protobuf.MessageLite;
import dev.sagad.guard.Guard;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Task;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;

/** The bank's side of a settlement: four effects, each in one transaction with its guard. */
final class Bank {

  private final Guard guard = Guard.postgresql();
  private final String url;
  private final Properties properties;
  private final ConcurrentLinkedQueue<Connection> idle = new ConcurrentLinkedQueue<>();

  Bank(String url, Properties properties) {
    this.url = url;
    this.properties = properties;
  }

  Receipt debit(Task task, Payment payment) throws Exception {
    return Receipt.parseFrom(
        guarded(
            task,
            payment,
            bank -> {
              Row row =
                  query(
                      bank,
                      "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - ?"
                          + " WHERE id = ? AND balance_cents >= ? RETURNING id, balance_cents),"
                          + " made AS (INSERT INTO debits (settlement_id, account, amount_cents)"
                          + " SELECT ?, id, ? FROM moved RETURNING debit_id)"
                          + " SELECT debit_id, balance_cents FROM made, moved",
                      payment.getAmountCents(),
                      payment.getAccount(),
                      payment.getAmountCents(),
                      payment.getPaymentId(),
                      payment.getAmountCents());
              if (row == null) {
                throw new Rejected("INSUFFICIENT_FUNDS", "the account does not hold that much");
              }
              return Receipt.newBuilder().setDebitId(row.id).setBalanceCents(row.more).build();
            }));
  }

  Empty refund(Task task, RefundRequest request) throws Exception {
    Payment payment = request.getInput();
    guarded(
        task,
        payment,
        bank -> {
          Row row =
              query(
                  bank,
                  "WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + ?"
                      + " WHERE id = ? RETURNING id, balance_cents),"
                      + " made AS (INSERT INTO refunds (settlement_id, debit_id, account,"
                      + " amount_cents) SELECT ?, ?, id, ? FROM moved RETURNING refund_id)"
                      + " SELECT refund_id, balance_cents FROM made, moved",
                  payment.getAmountCents(),
                  payment.getAccount(),
                  payment.getPaymentId(),
                  request.hasDebitAccount() ? request.getDebitAccount().getDebitId() : null,
                  payment.getAmountCents());
          if (row == null) {
            throw new Retry("BANK_SQL", "the account is gone");
          }
          return null;
        });
    return Empty.getDefaultInstance();
  }

  LedgerEntry writeLedger(Task task, LedgerRequest request) throws Exception {
    Long debit = request.hasDebitAccount() ? request.getDebitAccount().getDebitId() : null;
    return LedgerEntry.parseFrom(
        guarded(
            task,
            request.getInput(),
            bank -> entry(bank, "SETTLEMENT", request.getInput(), 1, debit)));
  }

  Empty reverseLedger(Task task, ReverseRequest request) throws Exception {
    Long entry = request.hasWriteLedger() ? request.getWriteLedger().getEntryId() : null;
    guarded(
        task,
        request.getInput(),
        bank -> {
          entry(bank, "REVERSAL", request.getInput(), -1, entry);
          return null;
        });
    return Empty.getDefaultInstance();
  }

  private static LedgerEntry entry(
      Connection bank, String kind, Payment payment, int sign, Long about) throws SQLException {
    Row row =
        query(
            bank,
            "INSERT INTO ledger (settlement_id, kind, account, amount_cents, about_id)"
                + " VALUES (?, ?, ?, ?, ?) RETURNING entry_id, 0::bigint",
            payment.getPaymentId(),
            kind,
            payment.getAccount(),
            sign * payment.getAmountCents(),
            about);
    return LedgerEntry.newBuilder().setEntryId(row.id).build();
  }

  /* A connection for each transaction, from a pool as small as can be. */

  @FunctionalInterface
  private interface Effect {
    MessageLite run(Connection bank) throws Exception;
  }

  private Connection connection() {
    Connection kept = idle.poll();
    try {
      return kept != null ? kept : DriverManager.getConnection(url, properties);
    } catch (SQLException e) { // whatever the reason: nothing was done on it
      throw new Retry("BANK_CONNECTION", e.getMessage());
    }
  }

  private ByteString guarded(Task task, Payment payment, Effect effect) throws SQLException {
    if (payment.getAccount() < 1 || payment.getAmountCents() < 1) {
      throw new Rejected("BAD_REQUEST", "a payment is of an account, and of more than nothing");
    }
    Connection bank = connection();
    try {
      return guard.run(
          task,
          bank,
          on -> {
            MessageLite output = effect.run(on);
            return output == null ? ByteString.EMPTY : output.toByteString();
          });
    } finally {
      if (!bank.isClosed()) { // one that broke unseen is found out by the next, which is a RETRY
        idle.add(bank);
      }
    }
  }

  private record Row(long id, long more) {}

  /** The first row; null: there is none. A null among the values is a bigint. */
  private static Row query(Connection bank, String sql, Object... values) throws SQLException {
    try (PreparedStatement statement = bank.prepareStatement(sql)) {
      for (int i = 0; i < values.length; i++) {
        if (values[i] == null) {
          statement.setNull(i + 1, Types.BIGINT);
        } else {
          statement.setObject(i + 1, values[i]);
        }
      }
      try (ResultSet row = statement.executeQuery()) {
        return row.next() ? new Row(row.getLong(1), row.getLong(2)) : null;
      }
    }
  }
}
