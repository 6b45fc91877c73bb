// Callers and worker of the saga on Temporal: three activities that do nothing.
//
//	temporal namespace ADDRESS
//	temporal worker ADDRESS
//	temporal call ADDRESS CALLERS WARM_UP SECONDS
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"sagad.dev/bench/peers/callers"
)

const (
	namespace = "default"
	queue     = "saga"
	retention = 24 * time.Hour
	pollers   = 16 // of each kind; 2 by default, with which the worker is what is measured
	slots     = 1000
)

func step(_ context.Context, input string) (string, error) { return input[:10], nil }

// saga runs each step as an activity: scheduled, started and completed durably. Local activities would be
// recorded in bunches, at the end of a workflow task.
func saga(ctx workflow.Context, input string) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	var output string
	for range 3 {
		if err := workflow.ExecuteActivity(ctx, step, input).Get(ctx, &output); err != nil {
			return "", err
		}
	}
	return output, nil
}

type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(message string, pairs ...any) {
	fmt.Fprintln(os.Stderr, append([]any{message}, pairs...)...)
}
func (silent) Error(message string, pairs ...any) { silent{}.Warn(message, pairs...) }

var _ log.Logger = silent{}

func makeNamespace(address string) error {
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: address, Logger: silent{}})
	if err != nil {
		return err
	}
	defer namespaces.Close()
	err = namespaces.Register(context.Background(), &workflowservice.RegisterNamespaceRequest{
		Namespace:                        namespace,
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	if existed := (*serviceerror.NamespaceAlreadyExists)(nil); errors.As(err, &existed) {
		return nil
	}
	return err
}

func work(temporal client.Client) error {
	w := worker.New(temporal, queue, worker.Options{
		MaxConcurrentWorkflowTaskPollers:       pollers,
		MaxConcurrentActivityTaskPollers:       pollers,
		MaxConcurrentActivityExecutionSize:     slots,
		MaxConcurrentWorkflowTaskExecutionSize: slots,
	})
	w.RegisterWorkflow(saga)
	w.RegisterActivity(step)
	if err := w.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
	w.Stop()
	return nil
}

func call(temporal client.Client, arguments []string) error {
	options, err := callers.Parse(arguments)
	if err != nil {
		return err
	}
	input := strings.Repeat("x", 100)
	return callers.Measure(options, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		start := client.StartWorkflowOptions{ID: uuid.NewString(), TaskQueue: queue}
		run, err := temporal.ExecuteWorkflow(ctx, start, saga, input)
		if err != nil {
			return err
		}
		return run.Get(ctx, nil)
	})
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: temporal namespace|worker|call ADDRESS ...")
	}
	what, address := arguments[0], arguments[1]
	if what == "namespace" {
		return makeNamespace(address)
	}
	temporal, err := client.Dial(client.Options{HostPort: address, Namespace: namespace, Logger: silent{}})
	if err != nil {
		return err
	}
	defer temporal.Close()
	switch what {
	case "worker":
		return work(temporal)
	case "call":
		return call(temporal, arguments[2:])
	}
	return fmt.Errorf("unknown: %s", what)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "temporal:", err)
		os.Exit(1)
	}
}
