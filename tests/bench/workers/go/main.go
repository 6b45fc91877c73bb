// A worker on the Go SDK whose handler does nothing but say DONE.
//
//	worker --target ADDRESS --handler NAME --concurrency N
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"sagad.dev/go/worker"
)

func nothing(context.Context, *worker.Task) ([]byte, error) { return nil, nil }

func run() error {
	target := flag.String("target", "", "the orchestrator's address")
	handler := flag.String("handler", "", "the handler's name")
	concurrency := flag.Int("concurrency", 0, "handlers at a time")
	flag.Parse()
	w, err := worker.New(worker.Options{
		Addresses: []string{*target}, ID: "noop-go", Concurrency: *concurrency, Signals: true,
	})
	if err == nil {
		err = w.Handle(*handler, *concurrency, nothing)
	}
	if err == nil {
		err = w.Run(context.Background())
	}
	return err
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "noop worker:", err)
		os.Exit(1)
	}
}
