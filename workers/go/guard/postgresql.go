package guard

import (
	"context"
	"errors"
)

// PostgreSQL 14 or newer, with sql/guard/postgresql.sql.
var PostgreSQL Dialect = postgresql{}

type postgresql struct{}

const (
	pgTask = "($1::text, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::bigint, " +
		"timestamptz 'epoch' + $8::bigint * interval '1 microsecond', $9::boolean)"
	pgDone = "SELECT saga_guard.done($1::text, $2::text, $3::text, $4::integer, $5::text, $6::text, $7::bytea)"
)

func (postgresql) ask(ctx context.Context, conn Conn, function string, k *key) (answer Answer, output []byte, err error) {
	err = conn.QueryRowContext(ctx, "SELECT answer, output FROM saga_guard."+function+pgTask, k.namespace, k.definition,
		k.sagaID, k.run, k.step, k.operation, k.fence, k.startedUS, k.even).Scan(&answer, &output)
	return answer, output, err
}

func (d postgresql) enter(ctx context.Context, conn Conn, k *key) (Answer, []byte, error) {
	return d.ask(ctx, conn, "enter", k)
}

func (d postgresql) noEffect(ctx context.Context, conn Conn, k *key) (Answer, []byte, error) {
	return d.ask(ctx, conn, "no_effect", k)
}

func (postgresql) done(ctx context.Context, conn Conn, k *key, output []byte) error {
	if output == nil {
		output = []byte{}
	}
	_, err := conn.ExecContext(ctx, pgDone, k.namespace, k.definition, k.sagaID, k.run, k.step, k.operation, output)
	return err
}

// The database refuses a COMMIT between enter and done.
func (postgresql) began(context.Context, Conn) error  { return nil }
func (postgresql) ending(context.Context, Conn) error { return nil }

// isCertain: an answer with an SQLSTATE, but for 40003 (statement completion unknown), class 08
// (connection) and 57P0x: the server was shut down meanwhile.
func (postgresql) isCertain(err error) bool {
	var pg interface{ SQLState() string }
	if !errors.As(err, &pg) {
		return false
	}
	state := pg.SQLState()
	return len(state) == 5 && state != "40003" && state[:2] != "08" && state[:2] != "57"
}
