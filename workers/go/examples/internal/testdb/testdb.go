// Package testdb starts a throw-away PostgreSQL and a throw-away MariaDB for tests: on free ports of
// 127.0.0.1, with files that go with the test. SAGAD_PG_BIN and SAGAD_MARIADB_BIN name the folders of
// their programs.
package testdb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/go-sql-driver/mysql" // "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // "pgx"
)

const patience = time.Minute

// Server is a database server.
type Server struct {
	folder  string
	address string
	driver  string
	account *syscall.Credential // nil: ourselves
	process *exec.Cmd
	output  bytes.Buffer
	ended   chan struct{}
}

func folderOf(variable, usual string) string {
	if folder := os.Getenv(variable); folder != "" {
		return folder
	}
	return usual
}

// newServer makes a folder for a server that refuses to run as root.
func newServer(driver string, accounts ...string) (*Server, error) {
	s := &Server{driver: driver, ended: make(chan struct{})}
	var err error
	if s.folder, err = os.MkdirTemp("", "sagad-"+driver); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.address = listener.Addr().String()
	if err := listener.Close(); err != nil || os.Geteuid() != 0 {
		return s, err
	}
	for _, name := range accounts {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(account.Uid) // numbers, on this system
		gid, _ := strconv.Atoi(account.Gid)
		s.account = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return s, os.Chown(s.folder, uid, gid)
	}
	return nil, fmt.Errorf("none of the system users %v is here to run it as", accounts)
}

func (s *Server) command(program string, arguments ...string) *exec.Cmd {
	c := exec.Command(program, arguments...)
	c.Dir = s.folder
	c.Env = append(os.Environ(), "TMPDIR="+s.folder)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: s.account, Pdeathsig: syscall.SIGKILL}
	return c
}

func (s *Server) port() string {
	_, port, _ := net.SplitHostPort(s.address) // it is our own
	return port
}

// StartPostgreSQL starts a server, with the database "test".
func StartPostgreSQL() (*Server, error) {
	s, err := newServer("pgx", "postgres")
	if err != nil {
		return nil, err
	}
	programs := folderOf("SAGAD_PG_BIN", "/usr/lib/postgresql/15/bin")
	data := filepath.Join(s.folder, "data")
	made, err := s.command(filepath.Join(programs, "initdb"), "-D", data, "-U", "postgres", "-E", "UTF8",
		"--locale=C.UTF-8", "--auth=trust", "--no-sync").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, made)
	}
	return s, s.start(filepath.Join(programs, "postgres"), "-D", data, "-p", s.port(), "-k", s.folder,
		"-c", "listen_addresses=127.0.0.1")
}

// StartMariaDB starts a server, with the database "test".
func StartMariaDB() (*Server, error) {
	s, err := newServer("mysql", "mysql", "nobody")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(s.folder, "data")
	made, err := s.command("/usr/bin/mariadb-install-db", "--no-defaults", "--datadir="+data,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		"--innodb-log-file-size=16M", "--innodb-use-native-aio=0").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w: %s", err, made)
	}
	return s, s.start(filepath.Join(folderOf("SAGAD_MARIADB_BIN", "/usr/sbin"), "mariadbd"), "--no-defaults",
		"--datadir="+data, "--socket="+filepath.Join(s.folder, "sock"), "--bind-address=127.0.0.1", "--port="+s.port(),
		"--innodb-buffer-pool-size=64M", "--innodb-log-file-size=16M", "--innodb-use-native-aio=0",
		"--innodb-fast-shutdown=2", "--innodb-lock-wait-timeout=1", "--character-set-server=utf8mb4")
}

func (s *Server) start(program string, arguments ...string) error {
	s.process = s.command(program, arguments...)
	s.process.Stdout, s.process.Stderr = &s.output, &s.output
	if err := s.process.Start(); err != nil {
		return err
	}
	go func() {
		_ = s.process.Wait() // it is killed at the end
		close(s.ended)
	}()
	db, err := s.open(s.address, "")
	if err != nil {
		return err
	}
	defer db.Close()
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err = db.Exec("CREATE DATABASE test"); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended: %s", program, s.output.String())
		default:
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s does not answer: %w", program, err)
		}
	}
}

// Stop ends it, and removes its files.
func (s *Server) Stop() error {
	if err := s.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-s.ended
	return os.RemoveAll(s.folder)
}

func (s *Server) open(address, database string) (*sql.DB, error) {
	if s.driver == "pgx" {
		if database == "" {
			database = "postgres"
		}
		return sql.Open("pgx", "postgres://postgres@"+address+"/"+database+"?sslmode=disable")
	}
	return sql.Open("mysql", "root@tcp("+address+")/"+database+"?multiStatements=true")
}

// Open connects to the database "test".
func (s *Server) Open() (*sql.DB, error) { return s.open(s.address, "test") }

// DSN names the database "test" for sql.Open with the driver "pgx" or "mysql".
func (s *Server) DSN() string {
	if s.driver == "pgx" {
		return "postgres://postgres@" + s.address + "/test?sslmode=disable"
	}
	return "root@tcp(" + s.address + ")/test"
}

// RunFile runs a file of SQL statements.
func RunFile(ctx context.Context, db *sql.DB, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err = db.ExecContext(ctx, string(text)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Cutter stands between a client and the server, and cuts their connections.
type Cutter struct {
	server   *Server
	listener net.Listener
	word     atomic.Pointer[string]
	deliver  atomic.Bool
}

// NewCutter listens on a port of its own.
func (s *Server) NewCutter() (*Cutter, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Cutter{server: s, listener: listener}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(client)
		}
	}()
	return c, nil
}

// Open connects to the database "test" through the cutter.
func (c *Cutter) Open() (*sql.DB, error) { return c.server.open(c.listener.Addr().String(), "test") }

// Close listens no more.
func (c *Cutter) Close() error { return c.listener.Close() }

// CutAt cuts the connection on which the client says this word; `deliver`: the server still gets it, and
// the client hears nothing of its answer.
func (c *Cutter) CutAt(word string, deliver bool) {
	c.deliver.Store(deliver)
	c.word.Store(&word)
}

func (c *Cutter) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.server.address)
	if err != nil {
		return
	}
	defer server.Close()
	var mute atomic.Bool
	answered := make(chan struct{}, 1)
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if mute.Load() {
				answered <- struct{}{}
				return
			}
			if err != nil {
				client.Close()
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if word := c.word.Load(); word != nil && bytes.Contains(bytes.ToLower(buffer[:n]), []byte(*word)) {
			c.word.Store(nil)
			if c.deliver.Load() {
				mute.Store(true)
				if _, err := server.Write(buffer[:n]); err == nil {
					<-answered
				}
			}
			return
		}
		if _, err := io.Copy(server, bytes.NewReader(buffer[:n])); err != nil {
			return
		}
	}
}
