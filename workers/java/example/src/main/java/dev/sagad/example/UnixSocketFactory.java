package dev.sagad.example;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import javax.net.SocketFactory;

/** For a JDBC driver that knows host and port alone: sockets to a path, whatever it connects to. */
public final class UnixSocketFactory extends SocketFactory {

  private final String path;

  /** The driver makes it. */
  public UnixSocketFactory(String path) {
    this.path = path;
  }

  @Override
  public Socket createSocket() throws IOException {
    return new UnixSocket(path);
  }

  @Override
  public Socket createSocket(String host, int port) throws IOException {
    Socket socket = createSocket();
    socket.connect(null);
    return socket;
  }

  @Override
  public Socket createSocket(String host, int port, InetAddress local, int localPort)
      throws IOException {
    return createSocket(host, port);
  }

  @Override
  public Socket createSocket(InetAddress host, int port) throws IOException {
    return createSocket("", port);
  }

  @Override
  public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort)
      throws IOException {
    return createSocket("", port);
  }

  /** What of a socket a driver uses; options of TCP mean nothing here. */
  private static final class UnixSocket extends Socket {
    private final UnixDomainSocketAddress address;
    private final SocketChannel channel;

    UnixSocket(String path) throws IOException {
      address = UnixDomainSocketAddress.of(path);
      channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    }

    @Override
    public void connect(SocketAddress ignored) throws IOException {
      channel.connect(address);
    }

    @Override
    public void connect(SocketAddress ignored, int timeout) throws IOException {
      channel.connect(address);
    }

    @Override
    public boolean isConnected() {
      return channel.isConnected();
    }

    @Override
    public boolean isClosed() {
      return !channel.isOpen();
    }

    @Override
    public void setTcpNoDelay(boolean on) {}

    @Override
    public void setKeepAlive(boolean on) {}

    @Override
    public void setSoTimeout(int timeout) {}

    @Override
    public int getSoTimeout() {
      return 0;
    }

    @Override
    public void setReceiveBufferSize(int size) {}

    @Override
    public void setSendBufferSize(int size) {}

    @Override
    public int getReceiveBufferSize() {
      return 65_536;
    }

    @Override
    public int getSendBufferSize() {
      return 65_536;
    }

    @Override
    public InputStream getInputStream() {
      return new InputStream() {
        @Override
        public int read() throws IOException {
          byte[] one = new byte[1];
          return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
        }

        @Override
        public int read(byte[] bytes, int offset, int size) throws IOException {
          return channel.read(ByteBuffer.wrap(bytes, offset, size));
        }
      };
    }

    @Override
    public OutputStream getOutputStream() {
      return new OutputStream() {
        @Override
        public void write(int one) throws IOException {
          write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int offset, int size) throws IOException {
          ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, size);
          while (buffer.hasRemaining()) {
            channel.write(buffer);
          }
        }
      };
    }

    @Override
    public void close() throws IOException {
      channel.close();
    }
  }
}
