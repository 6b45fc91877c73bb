package dev.sagad.example;

import bank.v1.SettlementOuterClass.LedgerRequest;
import bank.v1.SettlementOuterClass.Payment;
import bank.v1.SettlementOuterClass.RefundRequest;
import bank.v1.SettlementOuterClass.ReverseRequest;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/**
 * The worker of the settlement demo: bank steps under the guard, risk steps over gRPC. Same arguments as
 * the one in C; `--only` names some of the rpcs by comma, to serve these alone.
 */
public final class SettlementWorker {

  private static final String SERVICE = "bank.v1.Settlement.";
  private static final int BANK_IN_FLIGHT = 8; // of each bank handler
  private static final int RISK_IN_FLIGHT = 12;

  private SettlementWorker() {}

  /** "host=... user=... dbname=...", as libpq takes it; a host with a slash is a socket's folder. */
  private static Bank bank(String conninfo) {
    Map<String, String> values = new HashMap<>(Map.of("host", "127.0.0.1", "port", "5432"));
    for (String pair : conninfo.trim().split("\\s+")) {
      String[] parts = pair.split("=", 2);
      if (parts.length != 2) {
        throw new IllegalArgumentException("--bank: " + pair + " is not name=value");
      }
      values.put(parts[0], parts[1]);
    }
    Properties properties = new Properties();
    properties.setProperty("user", values.getOrDefault("user", System.getProperty("user.name")));
    properties.setProperty("password", values.getOrDefault("password", ""));
    properties.setProperty("connectTimeout", values.getOrDefault("connect_timeout", "5"));
    String host = values.get("host");
    if (host.startsWith("/")) {
      properties.setProperty("socketFactory", UnixSocketFactory.class.getName());
      properties.setProperty("socketFactoryArg", host + "/.s.PGSQL." + values.get("port"));
      properties.setProperty("sslmode", "disable");
      host = "localhost";
    }
    String database = values.getOrDefault("dbname", properties.getProperty("user"));
    return new Bank(
        "jdbc:postgresql://" + host + ":" + values.get("port") + "/" + database, properties);
  }

  public static void main(String[] args) {
    WorkerProgram program = new WorkerProgram("settlement_worker", args, "--bank", "--risk");
    Risk risk = new Risk(program.get("--risk"));
    Bank bank;
    try {
      bank = bank(program.get("--bank"));
    } catch (IllegalArgumentException e) {
      throw program.end(e.getMessage());
    }
    program.handle(SERVICE + "DebitAccount", BANK_IN_FLIGHT, Payment.class, bank::debit);
    program.handle(SERVICE + "RefundAccount", BANK_IN_FLIGHT, RefundRequest.class, bank::refund);
    program.handle(SERVICE + "WriteLedger", BANK_IN_FLIGHT, LedgerRequest.class, bank::writeLedger);
    program.handle(
        SERVICE + "ReverseLedger", BANK_IN_FLIGHT, ReverseRequest.class, bank::reverseLedger);
    program.handle(SERVICE + "NotifyRisk", RISK_IN_FLIGHT, Payment.class, risk::tell);
    program.handle(SERVICE + "WithdrawNotice", RISK_IN_FLIGHT, Payment.class, risk::withdraw);
    program.serve();
  }
}
