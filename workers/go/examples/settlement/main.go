// The worker of the settlement demo (workers/demo/settlement.proto) in Go: the bank's steps under the
// guard (bank.go), the risk steps over gRPC (risk.go).
//
//	settlement --sagad ADDRESS[,ADDRESS...] --bank CONNINFO --risk ADDRESS --id NAME [--only RPC,...]
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sagad.dev/go/examples/internal/riskpb"
	"sagad.dev/go/worker"
)

const (
	bankInFlight = 8 // of each handler
	riskInFlight = 12
	service      = "bank.v1.Settlement."
)

// handle adds the handlers; only, rpcs by comma, names some of them ("": all).
func handle(w *worker.Worker, bank *bank, risk *risk, only string) error {
	wanted := map[string]bool{}
	for _, name := range strings.FieldsFunc(only, func(r rune) bool { return r == ',' }) {
		wanted[name] = true
	}
	for _, h := range []struct {
		name string
		most int
		run  worker.Handler
	}{
		{"DebitAccount", bankInFlight, worker.Typed(bank.debit)},
		{"RefundAccount", bankInFlight, worker.Typed(bank.refund)},
		{"WriteLedger", bankInFlight, worker.Typed(bank.writeLedger)},
		{"ReverseLedger", bankInFlight, worker.Typed(bank.reverseLedger)},
		{"NotifyRisk", riskInFlight, worker.Typed(risk.notify)},
		{"WithdrawNotice", riskInFlight, worker.Typed(risk.withdraw)},
	} {
		if only != "" && !wanted[h.name] {
			continue
		}
		delete(wanted, h.name)
		if err := w.Handle(service+h.name, h.most, h.run); err != nil {
			return err
		}
	}
	for name := range wanted {
		return fmt.Errorf("--only: there is no handler %s", name)
	}
	return nil
}

func serve(sagad, conninfo, riskAddress, id, only string) error {
	db, err := sql.Open("pgx", conninfo)
	if err != nil {
		return fmt.Errorf("--bank: %w", err)
	}
	defer db.Close()
	db.SetMaxOpenConns(4 * bankInFlight)
	db.SetMaxIdleConns(4 * bankInFlight)
	conn, err := grpc.NewClient(riskAddress, grpc.WithTransportCredentials(insecure.NewCredentials()),
		worker.ProveSends())
	if err != nil {
		return fmt.Errorf("--risk: %w", err)
	}
	defer conn.Close()
	w, err := worker.New(worker.Options{Addresses: strings.Split(sagad, ","), ID: id, Signals: true})
	if err != nil {
		return err
	}
	if err := handle(w, &bank{db: db}, &risk{client: riskpb.NewRiskServiceClient(conn)}, only); err != nil {
		return err
	}
	fmt.Println("settlement: serving as", id)
	return w.Run(context.Background())
}

func main() {
	sagad := flag.String("sagad", "", "`addresses` of the orchestrator, separated by commas")
	conninfo := flag.String("bank", "", "`conninfo` of the bank's PostgreSQL")
	riskAddress := flag.String("risk", "", "`address` of the risk service")
	id := flag.String("id", "", "`name` of this worker")
	only := flag.String("only", "", "serve these `rpcs` alone, separated by commas: DebitAccount, ...")
	flag.Parse()
	if *sagad == "" || *conninfo == "" || *riskAddress == "" || *id == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := serve(*sagad, *conninfo, *riskAddress, *id, *only); err != nil {
		fmt.Fprintln(os.Stderr, "settlement:", err)
		os.Exit(1)
	}
}
