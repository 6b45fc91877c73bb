package dev.sagad.example;

import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import org.mariadb.jdbc.Configuration;
import org.mariadb.jdbc.util.ConfigurableSocketFactory;

/** {@link UnixSocketFactory} for MariaDB's driver: the path is the URL's option `socketPath`. */
public final class ShopSocketFactory extends ConfigurableSocketFactory {

  private UnixSocketFactory sockets;

  /** The driver makes it, and configures it next. */
  public ShopSocketFactory() {}

  @Override
  public void setConfiguration(Configuration configuration, String host) {
    sockets = new UnixSocketFactory(configuration.nonMappedOptions().getProperty("socketPath"));
  }

  @Override
  public Socket createSocket() throws IOException {
    return sockets.createSocket();
  }

  @Override
  public Socket createSocket(String host, int port) throws IOException {
    return sockets.createSocket(host, port);
  }

  @Override
  public Socket createSocket(String host, int port, InetAddress local, int localPort)
      throws IOException {
    return sockets.createSocket(host, port);
  }

  @Override
  public Socket createSocket(InetAddress host, int port) throws IOException {
    return sockets.createSocket(host, port);
  }

  @Override
  public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort)
      throws IOException {
    return sockets.createSocket(host, port);
  }
}
