package guard

import (
	"context"
	"errors"
)

// MySQL 8.0.16 or newer, MariaDB 10.11 or newer, with sql/guard/mysql.sql, where it is said why these
// statements are as they are.
var MySQL Dialect = mysql{}

type mysql struct{}

const (
	myColumns = "(namespace, definition, saga_id, run, step, operation, fence, state, saga_started_us)"
	myStep    = "namespace = ? AND definition = ? AND saga_id = ? AND run = ? AND step = ?"
	myFloor   = "(SELECT floor_us FROM saga_guard_floor WHERE only_row = 1 LOCK IN SHARE MODE)"

	myBlockAction = "INSERT INTO saga_guard " + myColumns + " VALUES (?, ?, ?, ?, ?, 'ACTION', ?, 'BLOCKED', ?)" +
		" ON DUPLICATE KEY UPDATE state = CASE state WHEN 'DONE' THEN 'UNDONE' WHEN 'SEEN' THEN 'BLOCKED' ELSE state END"
	myClaim = "INSERT INTO saga_guard " + myColumns + " VALUES (?, ?, ?, ?, ?, ?, ?, 'ENTERED', ?)" +
		" ON DUPLICATE KEY UPDATE state = CASE WHEN state = 'ENTERED' THEN 'LEFT_OPEN'" +
		" WHEN state = 'SEEN' AND fence <= ? THEN 'ENTERED' ELSE state END, fence = GREATEST(fence, ?)"
	myAskAction = "SELECT CASE WHEN state IN ('UNDONE', 'BLOCKED') THEN 'REFUSED' WHEN state = 'DONE' THEN 'DUPLICATE'" +
		" WHEN state = 'LEFT_OPEN' THEN 'LEFT_OPEN' WHEN fence > ? OR saga_started_us < " + myFloor + " THEN 'STALE'" +
		" ELSE 'PROCEED' END AS answer, output FROM saga_guard WHERE " + myStep + " AND operation = 'ACTION' FOR UPDATE"
	myAskCompensation = "SELECT CASE WHEN own.state = 'DONE' THEN 'DUPLICATE'" +
		" WHEN own.state = 'LEFT_OPEN' OR action.state IN ('ENTERED', 'LEFT_OPEN') THEN 'LEFT_OPEN'" +
		" WHEN GREATEST(own.fence, action.fence) > ? OR own.saga_started_us < " + myFloor + " THEN 'STALE'" +
		" WHEN action.state = 'BLOCKED' AND NOT ? THEN 'EMPTY' ELSE 'PROCEED' END AS answer, own.output" +
		" FROM saga_guard action JOIN saga_guard own USING (namespace, definition, saga_id, run, step)" +
		" WHERE " + myStep + " AND action.operation = 'ACTION' AND own.operation = 'COMPENSATION' FOR UPDATE"
	myDone     = "UPDATE saga_guard SET state = 'DONE', output = ? WHERE " + myStep + " AND operation = ? AND state = 'ENTERED'"
	myNoEffect = "UPDATE saga_guard SET state = 'SEEN' WHERE " + myStep + " AND operation = ? AND state = 'ENTERED'"
	myUnblock  = "UPDATE saga_guard SET state = 'DONE' WHERE " + myStep + " AND operation = 'ACTION' AND state = 'UNDONE'"

	mySavepointMissing      = 1305
	myDeadlock              = 1213
	myRolledBackAtItsCommit = 3101 // MySQL's group replication
)

var errNotEntered = errors.New("the row of this transaction's enter is gone")

// step is what all statements begin with. The saga id is bytes: not to be converted.
func (k *key) myStep(more ...any) []any {
	return append([]any{k.namespace, k.definition, []byte(k.sagaID), k.run, k.step}, more...)
}

func (mysql) enter(ctx context.Context, conn Conn, k *key) (answer Answer, output []byte, err error) {
	ask, args := myAskAction, append([]any{k.fence}, k.myStep()...)
	if k.operation == "COMPENSATION" {
		if _, err := conn.ExecContext(ctx, myBlockAction, k.myStep(k.fence, k.startedUS)...); err != nil {
			return "", nil, err
		}
		ask, args = myAskCompensation, append([]any{k.fence, k.even}, k.myStep()...)
	}
	if _, err := conn.ExecContext(ctx, myClaim, k.myStep(k.operation, k.fence, k.startedUS, k.fence, k.fence)...); err != nil {
		return "", nil, err
	}
	err = conn.QueryRowContext(ctx, ask, args...).Scan(&answer, &output)
	return answer, output, err
}

// onEntered runs a statement that belongs to an enter: without its row it does nothing.
func onEntered(ctx context.Context, conn Conn, query string, args []any) error {
	result, err := conn.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows != 1 {
		return errors.Join(errNotEntered, err)
	}
	return nil
}

func (mysql) done(ctx context.Context, conn Conn, k *key, output []byte) error {
	if output == nil {
		output = []byte{}
	}
	return onEntered(ctx, conn, myDone, append([]any{output}, k.myStep(k.operation)...))
}

func (d mysql) noEffect(ctx context.Context, conn Conn, k *key) (Answer, []byte, error) {
	answer, output, err := d.enter(ctx, conn, k)
	if err != nil || answer != Proceed {
		return answer, output, err
	}
	if err := onEntered(ctx, conn, myNoEffect, k.myStep(k.operation)); err != nil {
		return "", nil, err
	}
	if k.operation == "COMPENSATION" {
		if _, err := conn.ExecContext(ctx, myUnblock, k.myStep()...); err != nil {
			return "", nil, err
		}
	}
	return recorded, nil, nil
}

// A savepoint is gone once the transaction has ended, be it by a statement that changes the schema.
func (mysql) began(ctx context.Context, conn Conn) error {
	_, err := conn.ExecContext(ctx, "SAVEPOINT saga_guard")
	return err
}

func (mysql) ending(ctx context.Context, conn Conn) error {
	_, err := conn.ExecContext(ctx, "RELEASE SAVEPOINT saga_guard")
	if mysqlNumber(err) == mySavepointMissing {
		return errBodyCommitted
	}
	return err
}

func (mysql) isCertain(err error) bool {
	number := mysqlNumber(err)
	return number == myDeadlock || number == myRolledBackAtItsCommit
}
