package dev.sagad.example;

import com.google.protobuf.ByteString;
import com.google.protobuf.Empty;
import dev.sagad.guard.Guard;
import dev.sagad.worker.Rejected;
import dev.sagad.worker.Retry;
import dev.sagad.worker.Task;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.concurrent.ConcurrentLinkedQueue;
import shop.v1.FulfilmentOuterClass.Order;

/**
 * Of the fulfilment demo the steps of the order's row: confirmed and cancelled under the guard, in the
 * shop's MariaDB. The other steps are for other workers.
 */
public final class OrderWorker {

  private static final String SERVICE = "shop.v1.Fulfilment.";
  private static final int IN_FLIGHT = 8; // of each handler

  private final Guard guard = Guard.mysql();
  private final String url;
  private final ConcurrentLinkedQueue<Connection> idle = new ConcurrentLinkedQueue<>();

  private OrderWorker(String socket) {
    url =
        "jdbc:mariadb://localhost/shop?user=worker&connectTimeout=3000&socketFactory="
            + ShopSocketFactory.class.getName()
            + "&socketPath="
            + socket;
  }

  private Empty confirm(Task task, Order order) throws SQLException {
    return change(
        task,
        order,
        "UPDATE orders SET state = 'CONFIRMED', confirmed = confirmed + 1"
            + " WHERE order_id = ? AND state IN ('PENDING', 'CONFIRMED')",
        new Rejected("NOT_PENDING", "there is no order that waits for this"));
  }

  private Empty cancel(Task task, Order order) throws SQLException {
    return change(
        task,
        order,
        "UPDATE orders SET state = 'CANCELLED', cancelled = cancelled + 1 WHERE order_id = ?",
        new Retry("SHOP_SQL", "the order is gone"));
  }

  private Connection connection() {
    Connection kept = idle.poll();
    try {
      return kept != null ? kept : DriverManager.getConnection(url);
    } catch (SQLException e) { // whatever the reason: nothing was done on it
      throw new Retry("SHOP_AWAY", e.getMessage());
    }
  }

  private Empty change(Task task, Order order, String sql, RuntimeException none)
      throws SQLException {
    Connection shop = connection();
    try {
      guard.run(
          task,
          shop,
          on -> {
            try (PreparedStatement update = on.prepareStatement(sql)) {
              update.setString(1, order.getOrderId());
              if (update.executeUpdate() == 0) {
                throw none;
              }
            }
            return ByteString.EMPTY;
          });
      return Empty.getDefaultInstance();
    } finally {
      if (!shop.isClosed()) { // one that broke unseen is found out by the next, which is a RETRY
        idle.add(shop);
      }
    }
  }

  public static void main(String[] args) {
    WorkerProgram program = new WorkerProgram("order_worker", args, "--shop");
    OrderWorker orders = new OrderWorker(program.get("--shop"));
    program.handle(SERVICE + "ConfirmOrder", IN_FLIGHT, Order.class, orders::confirm);
    program.handle(SERVICE + "CancelOrder", IN_FLIGHT, Order.class, orders::cancel);
    program.serve();
  }
}
