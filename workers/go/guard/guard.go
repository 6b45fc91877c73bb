// Package guard makes an effect in your own database happen at most once for each saga, step and
// operation, and never after its compensation (sql/guard of the orchestrator's repository, whose tables
// must be in the database of the effect).
//
//	func debit(ctx context.Context, task *worker.Task, in *bankpb.Payment) (*bankpb.Receipt, error) {
//		return guard.Run(ctx, db, guard.PostgreSQL, task, func(ctx context.Context, tx *sql.Tx) (*bankpb.Receipt, error) {
//			... the effect, with tx alone ...
//		})
//	}
//
// It works with any driver of database/sql (pgx, lib/pq, go-sql-driver/mysql), of which it needs none
// itself.
package guard

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"sagad.dev/go/sagapb"
	"sagad.dev/go/worker"
)

// Answer is what the guard says of an operation.
type Answer string

// The answers. Where several apply, the first of these counts.
const (
	Refused   Answer = "REFUSED"   // an action after its compensation: roll back, Reject
	Duplicate Answer = "DUPLICATE" // the effect is there; commit, AlreadyDone with the stored output
	Stale     Answer = "STALE"     // a newer holder was here, or the saga is below the floor: roll back, Retry
	Empty     Answer = "EMPTY"     // a compensation of what never ran: commit, success
	Proceed   Answer = "PROCEED"   // do it, then Done, then commit
	LeftOpen  Answer = "LEFT_OPEN" // MySQL: a worker committed without Done: roll back, Unknown

	recorded Answer = "RECORDED" // it stands that there is no effect
)

// Conn is a transaction: *sql.Tx, or *sql.Conn on which one was begun.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Beginner begins a transaction: *sql.DB, or *sql.Conn outside of one.
type Beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// Dialect is the kind of database: PostgreSQL or MySQL.
type Dialect interface {
	enter(ctx context.Context, conn Conn, k *key) (Answer, []byte, error)
	done(ctx context.Context, conn Conn, k *key, output []byte) error
	noEffect(ctx context.Context, conn Conn, k *key) (Answer, []byte, error)
	// began and ending find out a body that ended the transaction: errBodyCommitted.
	began(ctx context.Context, conn Conn) error
	ending(ctx context.Context, conn Conn) error
	// isCertain: of an error of COMMIT, the server said that nothing was committed.
	isCertain(err error) bool
}

// Option of Run and Enter.
type Option func(*key)

// EvenWithoutAction: a compensation whose action left no trace in the database is Proceed and not Empty.
// For an action that also has an effect outside of the database, which a rolled back transaction does not
// take back. The body must then bear that there is nothing to undo.
func EvenWithoutAction() Option { return func(k *key) { k.even = true } }

// key is the identity under which the guard keeps an operation.
type key struct {
	namespace, definition, sagaID string
	run                           int32
	step, operation               string
	fence, startedUS              int64
	even                          bool
}

func keyOf(task *worker.Task, options []Option) *key {
	k := &key{namespace: task.Namespace, definition: task.Definition, sagaID: task.SagaID, run: task.Run,
		step: task.Step, operation: "ACTION", fence: task.Fence, startedUS: task.SagaStarted.UnixMicro()}
	if task.Operation == worker.Compensation {
		k.operation = "COMPENSATION"
	}
	for _, option := range options {
		option(k)
	}
	return k
}

// Enter is the first thing of a transaction of your own; output is what the operation answered, for
// Duplicate. After an error roll back; it is such that a handler may return it (RETRY).
func Enter(ctx context.Context, conn Conn, dialect Dialect, task *worker.Task, options ...Option) (answer Answer, output []byte, err error) {
	if task.Operation == worker.Probe {
		return "", nil, worker.Unknown("GUARD_PROBE", "the guard is for actions and compensations")
	}
	answer, output, err = dialect.enter(ctx, conn, keyOf(task, options))
	if err != nil {
		return "", nil, retryOf(err)
	}
	return answer, output, nil
}

// Done is the last thing of that transaction after Proceed (MySQL: after Empty, too), before you commit.
// The output is what a repeat will be told. After an error roll back; a handler may return it (RETRY).
// An error of the commit itself is worker.Unknown.
func Done(ctx context.Context, conn Conn, dialect Dialect, task *worker.Task, output []byte) error {
	if err := dialect.done(ctx, conn, keyOf(task, nil), output); err != nil {
		return retryOf(err)
	}
	return nil
}

// Run is RunBytes for a handler with messages.
func Run[Out proto.Message](ctx context.Context, db Beginner, dialect Dialect, task *worker.Task,
	body func(context.Context, *sql.Tx) (Out, error), options ...Option) (Out, error) {
	var out Out
	bytes, err := RunBytes(ctx, db, dialect, task, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		message, err := body(ctx, tx)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(message)
	}, options...)
	if err != nil && !isAlreadyDone(err) {
		return out, err
	}
	out = out.ProtoReflect().New().Interface().(Out)
	if problem := proto.Unmarshal(bytes, out); problem != nil {
		return out, worker.Unknown("GUARD_OUTPUT", "the stored output cannot be read: "+problem.Error())
	}
	return out, err
}

func isAlreadyDone(err error) bool {
	var said *worker.OutcomeError
	return errors.As(err, &said) && said.Outcome == sagapb.Outcome_OUTCOME_ALREADY_DONE
}

// RunBytes runs a whole guarded transaction: BEGIN, enter, the body if the guard says Proceed, done,
// COMMIT. What it answers is for the handler to return:
//
//	Proceed    the output of the body      Duplicate  the stored output, AlreadyDone(ours)
//	Empty      no output                   Refused    Reject GUARD_REFUSED
//	Stale      Retry GUARD_STALE           LeftOpen   Unknown GUARD_LEFT_OPEN
//	any error before COMMIT, or the end of ctx: Retry · a COMMIT without an answer: Unknown
//
// The body does its effect with tx, and must not end it. If it answers an error the transaction is rolled
// back: Reject, Retry and Unknown are passed on, any other error is a Retry. After a business no the fence
// is remembered before it is reported. A COMMIT that is confirmed with a mere warning ("committed
// locally", of a synchronous standby) cannot be told from others through database/sql.
func RunBytes(ctx context.Context, db Beginner, dialect Dialect, task *worker.Task,
	body func(context.Context, *sql.Tx) ([]byte, error), options ...Option) ([]byte, error) {
	if task.Operation == worker.Probe {
		return nil, worker.Unknown("GUARD_PROBE", "the guard is for actions and compensations")
	}
	r := &run{ctx: ctx, db: db, dialect: dialect, key: keyOf(task, options)}
	output, err := r.guarded(body)
	var said *worker.OutcomeError
	if errors.As(err, &said) && said.Outcome == sagapb.Outcome_OUTCOME_REJECTED && said.Code != refused {
		return r.recordNoEffect(said)
	}
	return output, err
}

const refused = "GUARD_REFUSED"

var errBodyCommitted = errors.New("the body ended the guard's transaction")

type run struct {
	ctx     context.Context
	db      Beginner
	dialect Dialect
	key     *key
}

func (r *run) guarded(body func(context.Context, *sql.Tx) ([]byte, error)) ([]byte, error) {
	tx, err := r.db.BeginTx(r.ctx, nil)
	if err != nil {
		return nil, retryOf(err)
	}
	defer tx.Rollback() // after a commit it does nothing; else the server rolls back with the connection
	answer, output, err := r.dialect.enter(r.ctx, tx, r.key)
	if err != nil {
		return nil, retryOf(err)
	}
	if answer != Proceed {
		return r.settle(tx, answer, output)
	}
	if err := r.dialect.began(r.ctx, tx); err != nil {
		return nil, retryOf(err)
	}
	output, err = body(r.ctx, tx)
	if err != nil {
		return nil, ofBody(err)
	}
	return output, r.finish(tx, output)
}

// settle ends a transaction in which there is no body to run.
func (r *run) settle(tx *sql.Tx, answer Answer, output []byte) ([]byte, error) {
	switch answer {
	case Duplicate:
		if err := r.commit(tx); err != nil {
			return nil, err
		}
		return output, worker.AlreadyDone(true)
	case Empty:
		if r.dialect == MySQL {
			if err := r.dialect.done(r.ctx, tx, r.key, nil); err != nil {
				return nil, retryOf(err)
			}
		}
		return nil, r.commit(tx)
	case Refused:
		return nil, worker.Reject(refused, "the action came after its compensation")
	case Stale:
		return nil, worker.Retry("GUARD_STALE", "a newer holder was here, or the saga is below the floor", 0)
	case LeftOpen:
		return nil, worker.Unknown("GUARD_LEFT_OPEN", "a worker entered the guard and committed without done")
	}
	return nil, worker.Retry("GUARD_VERSION", fmt.Sprintf("the guard gave an answer that this worker does not know: %q", answer), 0)
}

func (r *run) finish(tx *sql.Tx, output []byte) error {
	err := r.dialect.ending(r.ctx, tx)
	if err == nil {
		err = r.dialect.done(r.ctx, tx, r.key, output)
	}
	if errors.Is(err, errBodyCommitted) || errors.Is(err, sql.ErrTxDone) {
		return &worker.OutcomeError{Outcome: sagapb.Outcome_OUTCOME_UNKNOWN, Code: "GUARD_BODY_COMMITTED", Err: errBodyCommitted}
	}
	if err != nil {
		return retryOf(err)
	}
	return r.commit(tx)
}

// commit: nil means that it certainly stands.
func (r *run) commit(tx *sql.Tx) error {
	if err := r.ctx.Err(); err != nil {
		return retryOf(err) // COMMIT was not sent
	}
	err := tx.Commit()
	if err == nil {
		return nil
	}
	if r.dialect.isCertain(err) {
		return retryOf(err)
	}
	return &worker.OutcomeError{Outcome: sagapb.Outcome_OUTCOME_UNKNOWN, Code: "GUARD_COMMIT_UNKNOWN", Err: err}
}

// recordNoEffect: the body said no. The fence is remembered before that is reported, so that an older
// holder that wakes up later is stale; if that fails the whole is a RETRY, which is as true.
func (r *run) recordNoEffect(said *worker.OutcomeError) ([]byte, error) {
	tx, err := r.db.BeginTx(r.ctx, nil)
	if err != nil {
		return nil, retryOf(err)
	}
	defer tx.Rollback() // as in guarded
	answer, output, err := r.dialect.noEffect(r.ctx, tx, r.key)
	if err != nil {
		return nil, retryOf(err)
	}
	if answer != recorded {
		return r.settle(tx, answer, output)
	}
	if err := r.commit(tx); err != nil {
		return nil, retryOf(err) // whether or not it is remembered: nothing took effect
	}
	return nil, said
}

// ofBody is what the body's error means, once the transaction is rolled back.
func ofBody(err error) error {
	var said *worker.OutcomeError
	if !errors.As(err, &said) {
		return retryOf(err)
	}
	switch said.Outcome {
	case sagapb.Outcome_OUTCOME_REJECTED, sagapb.Outcome_OUTCOME_RETRY, sagapb.Outcome_OUTCOME_UNKNOWN:
		return said
	}
	return worker.Retry("GUARD_BODY_FAILED", "the body answered "+said.Error()+", which is rolled back", 0)
}

// retryOf: it failed before COMMIT, so whatever the reason, nothing took effect.
func retryOf(err error) error {
	code := "GUARD_FAILED"
	var pg interface{ SQLState() string }
	if number := mysqlNumber(err); number != 0 {
		code = fmt.Sprintf("GUARD_MYSQL_%d", number)
	} else if errors.As(err, &pg) {
		code = "GUARD_SQLSTATE_" + pg.SQLState()
	} else if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		code = "GUARD_CONNECTION"
	}
	return &worker.OutcomeError{Outcome: sagapb.Outcome_OUTCOME_RETRY, Code: code, Err: err}
}

// mysqlNumber is the number of a server's error of go-sql-driver/mysql, by its name and its field, so that
// nobody needs that driver who does not use it; 0: it is none.
func mysqlNumber(err error) uint16 {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct || v.Elem().Type().Name() != "MySQLError" {
			continue
		}
		if number := v.Elem().FieldByName("Number"); number.IsValid() && number.Kind() == reflect.Uint16 {
			return uint16(number.Uint())
		}
	}
	return 0
}
