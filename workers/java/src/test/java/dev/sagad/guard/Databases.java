package dev.sagad.guard;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A database server of a test's own, on a free loopback port, with the guard in its database "shop". */
abstract class Databases implements AutoCloseable {

  private static final Path SQL = Path.of("../../sql/guard");
  private static final long START_S = 60;

  final Path folder;
  final int port;
  private Process server;

  Databases() throws IOException {
    folder = Files.createTempDirectory("saga-guard");
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      port = socket.getLocalPort();
    }
  }

  abstract String url();

  Connection connect() throws SQLException {
    return DriverManager.getConnection(url());
  }

  private static boolean isRoot() {
    return "root".equals(System.getProperty("user.name"));
  }

  /** Neither server runs as root: any user will do that owns nothing, and this one is there. */
  private List<String> as(String user, String... command) {
    List<String> all = new ArrayList<>();
    if (isRoot()) {
      all.addAll(List.of("setpriv", "--reuid=" + user, "--regid=" + user, "--clear-groups"));
    }
    all.addAll(Arrays.asList(command));
    return all;
  }

  private Process spawn(List<String> command) throws IOException {
    return new ProcessBuilder(command)
        .directory(folder.toFile())
        .redirectErrorStream(true)
        .redirectOutput(ProcessBuilder.Redirect.appendTo(folder.resolve("log").toFile()))
        .start();
  }

  void call(List<String> command) throws IOException, InterruptedException {
    Process process = spawn(command);
    if (!process.waitFor(START_S, TimeUnit.SECONDS) || process.exitValue() != 0) {
      process.destroyForcibly();
      throw new IOException(command + ": " + Files.readString(folder.resolve("log")));
    }
  }

  void own(String user) throws IOException, InterruptedException {
    if (isRoot()) {
      call(List.of("chown", "-R", user, folder.toString()));
    }
  }

  void startServer(String user, String... command) throws Exception {
    server = spawn(as(user, command));
    long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_S);
    while (true) {
      try (Connection connection = DriverManager.getConnection(adminUrl())) {
        connection.createStatement().execute("CREATE DATABASE shop");
        return;
      } catch (SQLException e) {
        if (!server.isAlive() || System.nanoTime() > until) {
          throw new IOException(Files.readString(folder.resolve("log")), e);
        }
        Thread.sleep(50); // between two looks: nothing tells when it listens
      }
    }
  }

  abstract String adminUrl();

  List<String> asUser(String user, String... command) {
    return as(user, command);
  }

  static Path sql(String name) {
    return SQL.resolve(name).toAbsolutePath().normalize();
  }

  /** The server is gone, with every connection. */
  void kill() throws InterruptedException {
    server.destroyForcibly().waitFor();
  }

  @Override
  public void close() throws IOException, InterruptedException {
    if (server != null) {
      kill();
    }
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.deleteIfExists(file);
      }
    }
  }

  static Databases postgresql() throws Exception {
    Databases database = new Postgresql();
    try (Connection connection = database.connect()) {
      connection.createStatement().execute(Files.readString(sql("postgresql.sql")));
    }
    return database;
  }

  static Databases mariadb() throws Exception {
    return new Mariadb();
  }

  private static final class Postgresql extends Databases {
    private static final String BIN = "/usr/lib/postgresql/15/bin/";

    Postgresql() throws Exception {
      own("postgres");
      String data = folder.resolve("data").toString();
      call(asUser("postgres", BIN + "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N",
          "--no-locale", "-E", "UTF8"));
      startServer("postgres", BIN + "postgres", "-D", data, "-p", Integer.toString(port),
          "-h", "127.0.0.1", "-k", folder.toString(), "-c", "fsync=off", "-c",
          "synchronous_commit=off", "-c", "deadlock_timeout=100ms");
    }

    @Override
    String adminUrl() {
      return "jdbc:postgresql://127.0.0.1:" + port + "/postgres?user=postgres";
    }

    @Override
    String url() {
      return "jdbc:postgresql://127.0.0.1:" + port + "/shop?user=postgres";
    }
  }

  private static final class Mariadb extends Databases {
    Mariadb() throws Exception {
      own("postgres");
      String data = "--datadir=" + folder.resolve("data");
      call(asUser("postgres", "mariadb-install-db", "--no-defaults", data, "--skip-test-db",
          "--auth-root-authentication-method=normal", "--tmpdir=" + folder,
          "--innodb-log-file-size=16M", "--innodb-use-native-aio=0"));
      startServer("postgres", "/usr/sbin/mariadbd", "--no-defaults", data,
          "--socket=" + folder.resolve("sock"), "--pid-file=" + folder.resolve("pid"),
          "--bind-address=127.0.0.1", "--port=" + port, "--skip-name-resolve",
          "--innodb-flush-log-at-trx-commit=0", "--tmpdir=" + folder,
          "--innodb-log-file-size=16M", "--innodb-use-native-aio=0", "--innodb-lock-wait-timeout=5");
      try (Connection connection = connect()) {
        // The driver sends one statement at a time.
        String text = Files.readString(sql("mysql.sql")).replaceAll("(?m)--.*$", "");
        for (String statement : text.split(";")) {
          if (!statement.isBlank()) {
            connection.createStatement().execute(statement);
          }
        }
      }
    }

    @Override
    String adminUrl() {
      return "jdbc:mariadb://127.0.0.1:" + port + "/mysql?user=root";
    }

    @Override
    String url() {
      return "jdbc:mariadb://127.0.0.1:" + port + "/shop?user=root";
    }
  }
}
