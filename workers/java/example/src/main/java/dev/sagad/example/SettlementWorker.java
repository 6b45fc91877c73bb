package dev.sagad.example;

import bank.v1.SettlementOuterClass.LedgerRequest;
import bank.v1.SettlementOuterClass.Payment;
import bank.v1.SettlementOuterClass.RefundRequest;
import bank.v1.SettlementOuterClass.ReverseRequest;
import dev.sagad.worker.Worker;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;

/**
 * The worker of the settlement demo: bank steps under the guard, risk steps over gRPC. Same arguments as
 * the one in C; `--only` takes names of rpcs by comma, for a part of them.
 */
public final class SettlementWorker {

  private static final String SERVICE = "bank.v1.Settlement.";
  private static final int BANK_IN_FLIGHT = 8; // of each bank handler
  private static final int RISK_IN_FLIGHT = 12;
  private static final Set<String> NAMES = Set.of("--sagad", "--bank", "--risk", "--id", "--only");

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

  private static Map<String, String> parse(String[] args) {
    Map<String, String> options = new HashMap<>();
    for (int i = 0; i + 1 < args.length; i += 2) {
      if (!NAMES.contains(args[i]) || options.put(args[i], args[i + 1]) != null) {
        return null;
      }
    }
    Set<String> required = Set.of("--sagad", "--bank", "--risk", "--id");
    return args.length % 2 == 0 && options.keySet().containsAll(required) ? options : null;
  }

  private static void handlers(Worker worker, Set<String> only, Bank bank, Risk risk) {
    Map<String, Runnable> all =
        Map.of(
            "DebitAccount",
            () -> worker.handle(
                SERVICE + "DebitAccount", BANK_IN_FLIGHT, Payment.class, bank::debit),
            "RefundAccount",
            () -> worker.handle(
                SERVICE + "RefundAccount", BANK_IN_FLIGHT, RefundRequest.class, bank::refund),
            "WriteLedger",
            () -> worker.handle(
                SERVICE + "WriteLedger", BANK_IN_FLIGHT, LedgerRequest.class, bank::writeLedger),
            "ReverseLedger",
            () -> worker.handle(
                SERVICE + "ReverseLedger",
                BANK_IN_FLIGHT,
                ReverseRequest.class,
                bank::reverseLedger),
            "NotifyRisk",
            () -> worker.handle(SERVICE + "NotifyRisk", RISK_IN_FLIGHT, Payment.class, risk::tell),
            "WithdrawNotice",
            () -> worker.handle(
                SERVICE + "WithdrawNotice", RISK_IN_FLIGHT, Payment.class, risk::withdraw));
    Set<String> names = only.isEmpty() ? all.keySet() : only;
    for (String name : names) {
      if (!all.containsKey(name)) {
        throw new IllegalArgumentException("--only: there is no " + name);
      }
      all.get(name).run();
    }
  }

  public static void main(String[] args) {
    Map<String, String> options = parse(args);
    if (options == null) {
      System.err.println(
          "usage: settlement_worker --sagad ADDRESS --bank CONNINFO --risk ADDRESS --id NAME"
              + " [--only NAME,...]");
      System.exit(2);
      return;
    }
    String only = options.getOrDefault("--only", "");
    Worker worker =
        Worker.builder(options.get("--sagad"))
            .workerId(options.get("--id"))
            .drainTime(Duration.ofSeconds(5))
            .handleSignals()
            .build();
    try {
      handlers(
          worker,
          only.isEmpty() ? Set.of() : Set.of(only.split(",")),
          bank(options.get("--bank")),
          new Risk(options.get("--risk")));
    } catch (IllegalArgumentException e) {
      System.err.println("settlement_worker: " + e.getMessage());
      System.exit(2);
    }
    System.out.println("settlement_worker: serving as " + options.get("--id"));
    worker.run();
    System.exit(0); // the channel to risk has threads of its own
  }
}
