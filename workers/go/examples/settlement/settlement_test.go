package main

import (
	"context"
	"database/sql"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"sagad.dev/go/examples/internal/bankpb"
	"sagad.dev/go/examples/internal/riskpb"
	"sagad.dev/go/examples/internal/testdb"
	"sagad.dev/go/sagapb"
	"sagad.dev/go/sagatest"
	"sagad.dev/go/worker"
)

// desk is a risk service that answers as it is told to.
type desk struct {
	riskpb.UnimplementedRiskServiceServer
	verdict riskpb.NotifyReply_Verdict
}

func (d *desk) Notify(_ context.Context, r *riskpb.NotifyRequest) (*riskpb.NotifyReply, error) {
	return &riskpb.NotifyReply{Verdict: d.verdict, IdempotencyKey: r.IdempotencyKey, Reference: "risk-1"}, nil
}

func (d *desk) Withdraw(context.Context, *riskpb.WithdrawRequest) (*riskpb.WithdrawReply, error) {
	return &riskpb.WithdrawReply{}, nil
}

// openBank makes the demo's bank in a database of its own. psql reads bank.sql, as the demo does, but
// for the guard, which is run by itself.
func openBank(t *testing.T) *sql.DB {
	server, err := testdb.StartPostgreSQL()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	db, err := sql.Open("pgx", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	text, err := os.ReadFile("../../../demo/bank.sql")
	if err != nil {
		t.Fatal(err)
	}
	tables, _, found := strings.Cut(string(text), `\ir `)
	if !found {
		t.Fatal("bank.sql includes the guard no more")
	}
	if _, err := db.Exec(tables); err != nil {
		t.Fatal(err)
	}
	if err := testdb.RunFile(context.Background(), db, filepath.Join("../../../../sql/guard/postgresql.sql")); err != nil {
		t.Fatal(err)
	}
	return db
}

func (d *desk) dial(t *testing.T) riskpb.RiskServiceClient {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	riskpb.RegisterRiskServiceServer(server, d)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), worker.ProveSends())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return riskpb.NewRiskServiceClient(conn)
}

// steps are those of settlement.proto, with its requests.
func steps(t *testing.T, payment *bankpb.Payment) []sagatest.Step {
	read := func(bytes []byte, message proto.Message) {
		if err := proto.Unmarshal(bytes, message); err != nil {
			t.Fatal(err)
		}
	}
	receipt := func(outputs map[string][]byte) *bankpb.Receipt {
		r := &bankpb.Receipt{}
		read(outputs["debit_account"], r)
		return r
	}
	return []sagatest.Step{
		{Name: "debit_account", Action: service + "DebitAccount", Compensation: service + "RefundAccount",
			Request: func(operation worker.Operation, outputs map[string][]byte) proto.Message {
				if operation == worker.Action {
					return payment
				}
				return &bankpb.RefundRequest{Input: payment, DebitAccount: receipt(outputs)}
			}},
		{Name: "write_ledger", Action: service + "WriteLedger", Compensation: service + "ReverseLedger",
			Request: func(operation worker.Operation, outputs map[string][]byte) proto.Message {
				if operation == worker.Action {
					return &bankpb.LedgerRequest{Input: payment, DebitAccount: receipt(outputs)}
				}
				entry := &bankpb.LedgerEntry{}
				read(outputs["write_ledger"], entry)
				return &bankpb.ReverseRequest{Input: payment, WriteLedger: entry}
			}},
		{Name: "notify_risk", Action: service + "NotifyRisk", Compensation: service + "WithdrawNotice",
			Request: func(worker.Operation, map[string][]byte) proto.Message { return payment }},
	}
}

func TestSettlements(t *testing.T) {
	db := openBank(t)
	third := &desk{}
	client := third.dial(t)
	o := sagatest.Start(t)
	o.Serve(func(w *worker.Worker) error { return handle(w, &bank{db: db}, &risk{client: client}, "") })
	for _, c := range []struct {
		id        string
		cents     int64
		verdict   riskpb.NotifyReply_Verdict
		succeeded bool
		books     string // debits, refunds, entries, reversals; cents that are gone
	}{
		{"settled", 1250, riskpb.NotifyReply_VERDICT_ACCEPTED, true, "1 0 1 0 1250"},
		{"there already", 10, riskpb.NotifyReply_VERDICT_ALREADY_EXISTS, true, "1 0 1 0 10"},
		{"refused", 99, riskpb.NotifyReply_VERDICT_REFUSED, false, "1 1 1 1 0"},
		{"no funds", 5000000, riskpb.NotifyReply_VERDICT_ACCEPTED, false, ""},
		{"no money", 0, riskpb.NotifyReply_VERDICT_ACCEPTED, false, ""},
	} {
		third.verdict = c.verdict
		payment := &bankpb.Payment{PaymentId: c.id, Account: 17, AmountCents: c.cents, Risk: riskpb.Behaviour_BEHAVIOUR_NORMAL}
		if played := o.Play(c.id, nil, steps(t, payment)...); played.Succeeded != c.succeeded {
			t.Errorf("%s: %v, %v", c.id, played.Succeeded, played.Steps)
		}
		var books string
		err := db.QueryRow(`SELECT concat_ws(' ', debits, refunds, ledger_entries, ledger_reversals, debited_cents - refunded_cents)
			FROM settlement_books WHERE settlement_id = $1`, c.id).Scan(&books)
		if err != nil && err != sql.ErrNoRows {
			t.Fatal(err)
		}
		if books != c.books {
			t.Errorf("%s: %q, wanted %q", c.id, books, c.books)
		}
	}
	var wrong int
	if err := db.QueryRow("SELECT count(*) FROM wrong_links").Scan(&wrong); err != nil || wrong != 0 {
		t.Errorf("%d wrong links, %v", wrong, err)
	}
}

func TestRiskThatIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), worker.ProveSends())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	o := sagatest.Start(t)
	o.Serve(func(w *worker.Worker) error {
		return handle(w, &bank{}, &risk{client: riskpb.NewRiskServiceClient(conn)}, "NotifyRisk")
	})
	report := o.Do(sagatest.Task{Handler: service + "NotifyRisk", Request: &bankpb.Payment{PaymentId: "p", Account: 1, AmountCents: 1}})
	if report.Outcome != sagapb.Outcome_OUTCOME_RETRY || report.ErrorCode != "NOT_SENT" {
		t.Error(report)
	}
}
