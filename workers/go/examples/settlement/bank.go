package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/emptypb"

	"sagad.dev/go/examples/internal/bankpb"
	"sagad.dev/go/guard"
	"sagad.dev/go/worker"
)

const accounts = 50

// bank does the steps in the bank's own database. Each is one guarded transaction.
type bank struct{ db *sql.DB }

// check: what no caller of ours makes, but a person may.
func check(payment *bankpb.Payment) error {
	switch {
	case payment == nil:
		return worker.Reject("BAD_REQUEST", "input: is missing")
	case payment.Account < 1 || payment.Account > accounts:
		return worker.Reject("BAD_REQUEST", fmt.Sprintf("account: is %d, must be 1 to %d", payment.Account, accounts))
	case payment.AmountCents < 1:
		return worker.Reject("BAD_REQUEST", fmt.Sprintf("amount_cents: is %d, must be positive", payment.AmountCents))
	}
	return nil
}

// known is NULL for the id of a row that nobody knows.
func known(id int64) sql.NullInt64 { return sql.NullInt64{Int64: id, Valid: id != 0} }

func (b *bank) debit(ctx context.Context, task *worker.Task, payment *bankpb.Payment) (*bankpb.Receipt, error) {
	if err := check(payment); err != nil {
		return nil, err
	}
	return guard.Run(ctx, b.db, guard.PostgreSQL, task, func(ctx context.Context, tx *sql.Tx) (*bankpb.Receipt, error) {
		receipt := &bankpb.Receipt{}
		err := tx.QueryRowContext(ctx, `
			WITH moved AS (UPDATE accounts SET balance_cents = balance_cents - $3
			                WHERE id = $2 AND balance_cents >= $3 RETURNING id, balance_cents),
			     made AS (INSERT INTO debits (settlement_id, account, amount_cents)
			              SELECT $1, id, $3 FROM moved RETURNING debit_id)
			SELECT debit_id, balance_cents FROM made, moved`,
			payment.PaymentId, payment.Account, payment.AmountCents).Scan(&receipt.DebitId, &receipt.BalanceCents)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, worker.Reject("INSUFFICIENT_FUNDS", "the account does not hold that much")
		}
		return receipt, err
	})
}

func (b *bank) refund(ctx context.Context, task *worker.Task, request *bankpb.RefundRequest) (*emptypb.Empty, error) {
	payment := request.Input
	if err := check(payment); err != nil {
		return nil, err
	}
	return guard.Run(ctx, b.db, guard.PostgreSQL, task, func(ctx context.Context, tx *sql.Tx) (*emptypb.Empty, error) {
		var id int64
		err := tx.QueryRowContext(ctx, `
			WITH moved AS (UPDATE accounts SET balance_cents = balance_cents + $3 WHERE id = $2 RETURNING id)
			INSERT INTO refunds (settlement_id, debit_id, account, amount_cents)
			SELECT $1, $4, id, $3 FROM moved RETURNING refund_id`,
			payment.PaymentId, payment.Account, payment.AmountCents, known(request.GetDebitAccount().GetDebitId())).Scan(&id)
		return &emptypb.Empty{}, err
	})
}

func (b *bank) writeLedger(ctx context.Context, task *worker.Task, request *bankpb.LedgerRequest) (*bankpb.LedgerEntry, error) {
	entry := &bankpb.LedgerEntry{}
	if err := check(request.Input); err != nil {
		return nil, err
	}
	return guard.Run(ctx, b.db, guard.PostgreSQL, task, func(ctx context.Context, tx *sql.Tx) (*bankpb.LedgerEntry, error) {
		return entry, enter(ctx, tx, request.Input, "SETTLEMENT", request.Input.AmountCents,
			request.GetDebitAccount().GetDebitId(), &entry.EntryId)
	})
}

func (b *bank) reverseLedger(ctx context.Context, task *worker.Task, request *bankpb.ReverseRequest) (*emptypb.Empty, error) {
	if err := check(request.Input); err != nil {
		return nil, err
	}
	return guard.Run(ctx, b.db, guard.PostgreSQL, task, func(ctx context.Context, tx *sql.Tx) (*emptypb.Empty, error) {
		var id int64
		return &emptypb.Empty{}, enter(ctx, tx, request.Input, "REVERSAL", -request.Input.AmountCents,
			request.GetWriteLedger().GetEntryId(), &id)
	})
}

func enter(ctx context.Context, tx *sql.Tx, payment *bankpb.Payment, kind string, cents, about int64, id *int64) error {
	return tx.QueryRowContext(ctx, `
		INSERT INTO ledger (settlement_id, kind, account, amount_cents, about_id)
		VALUES ($1, $2, $3, $4, $5) RETURNING entry_id`,
		payment.PaymentId, kind, payment.Account, cents, known(about)).Scan(id)
}
