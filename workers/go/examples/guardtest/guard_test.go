// Package guardtest tests the guard on real databases: a PostgreSQL and a MariaDB of its own.
package guardtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"sagad.dev/go/examples/internal/testdb"
	"sagad.dev/go/guard"
	"sagad.dev/go/sagapb"
	"sagad.dev/go/worker"
)

// database is what the tests run on.
type database struct {
	name    string
	dialect guard.Dialect
	server  *testdb.Server
	db      *sql.DB
	insert  string // the effect
	blocked string // says that a lock was not given in time
}

var databases []*database

func TestMain(m *testing.M) {
	code := 1
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	for _, d := range databases {
		if err := d.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func start() error {
	for _, d := range []*database{
		{name: "postgresql", dialect: guard.PostgreSQL, insert: "INSERT INTO effect (saga) VALUES ($1)", blocked: "GUARD_SQLSTATE_55P03"},
		{name: "mysql", dialect: guard.MySQL, insert: "INSERT INTO effect (saga) VALUES (?)", blocked: "GUARD_MYSQL_1205"},
	} {
		var err error
		if d.name == "mysql" {
			d.server, err = testdb.StartMariaDB()
		} else {
			d.server, err = testdb.StartPostgreSQL()
		}
		if err != nil {
			return err
		}
		databases = append(databases, d)
		if d.db, err = d.server.Open(); err != nil {
			return err
		}
		ctx := context.Background()
		if err := testdb.RunFile(ctx, d.db, filepath.Join("../../../../sql/guard", d.name+".sql")); err != nil {
			return err
		}
		if _, err := d.db.Exec("CREATE TABLE effect (saga varchar(64))"); err != nil {
			return err
		}
		if d.name == "postgresql" {
			if _, err := d.db.Exec("ALTER DATABASE test SET lock_timeout = '1s'"); err != nil {
				return err
			}
			d.db.SetMaxIdleConns(0) // those that are there do not know it
		}
	}
	return nil
}

func eachDatabase(t *testing.T, test func(*testing.T, *database)) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

func task(t *testing.T, operation worker.Operation, fence int64) *worker.Task {
	return &worker.Task{Namespace: "default", Definition: "test", SagaID: t.Name(), Run: 1, Step: "debit",
		Operation: operation, Fence: fence, SagaStarted: time.Unix(1700000000, 0)}
}

// effect is a body: the effect, and an output.
func (d *database) effect(t *testing.T, output string) func(context.Context, *sql.Tx) ([]byte, error) {
	return func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := tx.ExecContext(ctx, d.insert, t.Name())
		return []byte(output), err
	}
}

func (d *database) count(t *testing.T) (n int) {
	t.Helper()
	if err := d.db.QueryRow(strings.Replace(d.insert, "INSERT INTO effect (saga) VALUES (", "SELECT count(*) FROM effect WHERE saga = (", 1), t.Name()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// said is what came of it, in short.
func said(output []byte, err error) string {
	var e *worker.OutcomeError
	switch {
	case err == nil:
		return fmt.Sprintf("DONE %s", output)
	case !errors.As(err, &e):
		return "no outcome: " + err.Error()
	case e.Outcome == sagapb.Outcome_OUTCOME_ALREADY_DONE:
		return fmt.Sprintf("ALREADY_DONE %v %s", e.Ours, output)
	}
	return strings.TrimPrefix(e.Outcome.String(), "OUTCOME_") + " " + e.Code
}

// turn is one call of the guard.
type turn struct {
	operation worker.Operation
	fence     int64
	body      string // output; "!CODE": a business no; "#": any other error
	options   []guard.Option
	want      string
}

func TestHistories(t *testing.T) {
	action, compensation := worker.Action, worker.Compensation
	for name, c := range map[string]struct {
		turns   []turn
		effects int
	}{
		"once": {[]turn{{action, 1, "r1", nil, "DONE r1"}, {action, 1, "r2", nil, "ALREADY_DONE true r1"},
			{action, 2, "r2", nil, "ALREADY_DONE true r1"}}, 1},
		"no output": {[]turn{{action, 1, "", nil, "DONE "}, {action, 2, "", nil, "ALREADY_DONE true "}}, 1},
		"taken back": {[]turn{{action, 1, "r", nil, "DONE r"}, {compensation, 2, "b", nil, "DONE b"},
			{compensation, 3, "c", nil, "ALREADY_DONE true b"}, {action, 1, "r", nil, "REJECTED GUARD_REFUSED"}}, 2},
		"nothing to take back": {[]turn{{compensation, 2, "b", nil, "DONE "}, {compensation, 3, "b", nil, "ALREADY_DONE true "},
			{action, 4, "r", nil, "REJECTED GUARD_REFUSED"}}, 0},
		"even without action": {[]turn{{compensation, 2, "b", []guard.Option{guard.EvenWithoutAction()}, "DONE b"},
			{action, 3, "r", nil, "REJECTED GUARD_REFUSED"}}, 1},
		"a business no": {[]turn{{action, 5, "!NO_FUNDS", nil, "REJECTED NO_FUNDS"}, {action, 3, "r", nil, "RETRY GUARD_STALE"},
			{action, 6, "r", nil, "DONE r"}}, 1},
		"a business no of a compensation": {[]turn{{action, 1, "r", nil, "DONE r"}, {compensation, 5, "!CLOSED", nil, "REJECTED CLOSED"},
			{compensation, 4, "b", nil, "RETRY GUARD_STALE"}, {compensation, 6, "b", nil, "DONE b"}}, 2},
		"a failure": {[]turn{{action, 1, "#", nil, "RETRY GUARD_FAILED"}, {action, 1, "r", nil, "DONE r"}}, 1},
		"a probe":   {[]turn{{worker.Probe, 1, "r", nil, "UNKNOWN GUARD_PROBE"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, d *database) {
				for i, turn := range c.turns {
					body := func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
						output, err := d.effect(t, turn.body)(ctx, tx)
						if strings.HasPrefix(turn.body, "!") {
							err = fmt.Errorf("debit: %w", worker.Reject(turn.body[1:], "no"))
						} else if turn.body == "#" {
							err = errors.New("it went wrong")
						}
						return output, err
					}
					got := said(guard.RunBytes(context.Background(), d.db, d.dialect, task(t, turn.operation, turn.fence), body, turn.options...))
					if got != turn.want {
						t.Errorf("turn %d: %s, wanted %s", i+1, got, turn.want)
					}
				}
				if n := d.count(t); n != c.effects {
					t.Errorf("%d effects, wanted %d", n, c.effects)
				}
			})
		})
	}
}

func TestTyped(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		for i, want := range []string{"DONE 7", "ALREADY_DONE true 7"} {
			out, err := guard.Run(context.Background(), d.db, d.dialect, task(t, worker.Action, int64(i+1)),
				func(ctx context.Context, tx *sql.Tx) (*wrapperspb.Int64Value, error) {
					_, err := d.effect(t, "")(ctx, tx)
					return wrapperspb.Int64(7), err
				})
			if got := said(fmt.Append(nil, out.GetValue()), err); got != want {
				t.Errorf("%s, wanted %s", got, want)
			}
		}
	})
}

// A COMMIT whose answer is lost is UNKNOWN, whether or not the server got it; asking again tells.
func TestAnswerThatIsLost(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		for _, delivered := range []bool{true, false} {
			t.Run(fmt.Sprint(delivered), func(t *testing.T) {
				cutter, err := d.server.NewCutter()
				if err != nil {
					t.Fatal(err)
				}
				defer cutter.Close()
				db, err := cutter.Open()
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				cutter.CutAt("commit", delivered)
				if got := said(guard.RunBytes(context.Background(), db, d.dialect, task(t, worker.Action, 1), d.effect(t, "r"))); got != "UNKNOWN GUARD_COMMIT_UNKNOWN" {
					t.Fatal(got)
				}
				want := map[bool]string{true: "ALREADY_DONE true r", false: "DONE r2"}[delivered]
				if got := said(guard.RunBytes(context.Background(), db, d.dialect, task(t, worker.Action, 2), d.effect(t, "r2"))); got != want {
					t.Errorf("%s, wanted %s", got, want)
				}
				if n := d.count(t); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		}
	})
}

func TestConnectionLostBeforeCommit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		cutter, err := d.server.NewCutter()
		if err != nil {
			t.Fatal(err)
		}
		defer cutter.Close()
		db, err := cutter.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		cutter.CutAt("into effect", true)
		if got := said(guard.RunBytes(context.Background(), db, d.dialect, task(t, worker.Action, 1), d.effect(t, "r"))); !strings.HasPrefix(got, "RETRY GUARD_") {
			t.Error(got)
		}
		if n := d.count(t); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestLockNotGivenInTime(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		holder, err := d.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer holder.Rollback()
		if answer, _, err := guard.Enter(context.Background(), holder, d.dialect, task(t, worker.Action, 1)); err != nil || answer != guard.Proceed {
			t.Fatal(answer, err)
		}
		if got := said(guard.RunBytes(context.Background(), d.db, d.dialect, task(t, worker.Action, 2), d.effect(t, "r"))); got != "RETRY "+d.blocked {
			t.Error(got)
		}
	})
}

// With a transaction and a connection of one's own.
func TestEnterAndDone(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		ctx := context.Background()
		conn, err := d.db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, _, err := guard.Enter(ctx, tx, d.dialect, task(t, worker.Action, 1))
		if err != nil || answer != guard.Proceed {
			t.Fatal(answer, err)
		}
		if err := guard.Done(ctx, tx, d.dialect, task(t, worker.Action, 1), []byte("r")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := said(guard.RunBytes(ctx, conn, d.dialect, task(t, worker.Action, 2), d.effect(t, "x"))); got != "ALREADY_DONE true r" {
			t.Error(got)
		}
		if tx, err = conn.BeginTx(ctx, nil); err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		other := task(t, worker.Action, 1)
		other.Step = "another"
		if err := guard.Done(ctx, tx, d.dialect, other, nil); err == nil {
			t.Error("done without enter")
		}
	})
}

func TestBodyThatEndsTheTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		for name, end := range map[string]func(*sql.Tx) error{
			"rollback": func(tx *sql.Tx) error { return tx.Rollback() },
			"schema":   func(tx *sql.Tx) error { _, err := tx.Exec("CREATE TABLE ended (id int)"); return err },
		} {
			if d.name != "mysql" && name == "schema" {
				continue // there it ends nothing
			}
			t.Run(name, func(t *testing.T) {
				got := said(guard.RunBytes(context.Background(), d.db, d.dialect, task(t, worker.Action, 1),
					func(_ context.Context, tx *sql.Tx) ([]byte, error) { return nil, end(tx) }))
				if got != "UNKNOWN GUARD_BODY_COMMITTED" {
					t.Error(got)
				}
			})
		}
	})
}

func TestLeaseThatEndsBeforeCommit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		ctx, lost := context.WithCancelCause(context.Background())
		got := said(guard.RunBytes(ctx, d.db, d.dialect, task(t, worker.Action, 1), func(_ context.Context, tx *sql.Tx) ([]byte, error) {
			output, err := d.effect(t, "r")(context.Background(), tx)
			lost(worker.ErrLost)
			return output, err
		}))
		if got != "RETRY GUARD_FAILED" {
			t.Error(got)
		}
		if got := said(guard.RunBytes(context.Background(), d.db, d.dialect, task(t, worker.Action, 2), d.effect(t, "r"))); got != "DONE r" {
			t.Error(got)
		}
	})
}

func TestPanicLeavesNoTransactionOpen(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *database) {
		func() {
			defer func() { _ = recover() }()
			_, _ = guard.RunBytes(context.Background(), d.db, d.dialect, task(t, worker.Action, 1), func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				_, _ = d.effect(t, "r")(ctx, tx)
				panic("boom")
			})
			t.Error("the panic was swallowed")
		}()
		if got := said(guard.RunBytes(context.Background(), d.db, d.dialect, task(t, worker.Action, 2), d.effect(t, "r"))); got != "DONE r" {
			t.Error(got)
		}
		if n := d.count(t); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

func TestNothingIsSentWithoutAConnection(t *testing.T) {
	for _, driver := range []string{"pgx", "mysql"} {
		dsn := map[string]string{"pgx": "postgres://u@127.0.0.1:1/d?sslmode=disable", "mysql": "u@tcp(127.0.0.1:1)/d"}[driver]
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		_, err = db.Exec("UPDATE account SET balance = 0")
		if !new(worker.Task).NothingSent(err) {
			t.Errorf("%s: no proof in %v", driver, err)
		}
		d := databases[0]
		if got := said(guard.RunBytes(context.Background(), db, d.dialect, task(t, worker.Action, 1), d.effect(t, "r"))); !strings.HasPrefix(got, "RETRY GUARD_") {
			t.Errorf("%s: %s", driver, got)
		}
	}
}
