// Callers of the saga on sagad: each starts one and waits for its end, on few connections. The worker is
// tests/bench/noop_worker.
//
//	sagad define ADDRESS
//	sagad call ADDRESS CALLERS WARM_UP SECONDS
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"sagad.dev/bench/peers/callers"
	"sagad.dev/go/sagapb"
)

const (
	name     = "bench" // with one, two, three: what noop_worker serves
	channels = 4
	limit    = time.Minute
)

func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithNoProxy(), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func define(address string) error {
	conn, err := dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	definition := &sagapb.SagaDefinition{Name: name}
	for _, step := range []string{"one", "two", "three"} {
		definition.Steps = append(definition.Steps, &sagapb.Step{
			Name:   step,
			Action: &sagapb.Operation{Effect: sagapb.Effect_EFFECT_IDEMPOTENT},
			Undo:   &sagapb.Step_NoCompensation{NoCompensation: true},
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = sagapb.NewDefinitionServiceClient(conn).RegisterDefinition(ctx,
		&sagapb.RegisterDefinitionRequest{Definition: definition})
	return err
}

// one is a whole saga: a key that no other has, so that a repeated start would be recognised.
func one(sagas sagapb.SagaServiceClient, id string, input []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	started, err := sagas.StartSaga(ctx, &sagapb.StartSagaRequest{Definition: name, SagaId: id, Input: input})
	if err != nil {
		return err
	}
	ended, err := sagas.WaitSaga(ctx, &sagapb.WaitSagaRequest{
		Saga: &sagapb.SagaRef{Uid: started.Uid}, Timeout: durationpb.New(limit)})
	if err == nil && ended.State != sagapb.SagaState_SAGA_STATE_SUCCEEDED {
		err = fmt.Errorf("%s is %s", id, ended.State)
	}
	return err
}

func call(address string, arguments []string) error {
	options, err := callers.Parse(arguments)
	if err != nil {
		return err
	}
	var clients [channels]sagapb.SagaServiceClient
	for i := range clients {
		conn, err := dial(address)
		if err != nil {
			return err
		}
		defer conn.Close()
		clients[i] = sagapb.NewSagaServiceClient(conn)
	}
	var started atomic.Uint64
	begin := time.Now().UnixNano()
	input := []byte(strings.Repeat("x", 100))
	return callers.Measure(options, func() error {
		number := started.Add(1)
		return one(clients[number%channels], fmt.Sprintf("%d-%d", begin, number), input)
	})
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "define":
		return define(arguments[1])
	case len(arguments) == 5 && arguments[0] == "call":
		return call(arguments[1], arguments[2:])
	}
	return errors.New("usage: sagad define ADDRESS | call ADDRESS CALLERS WARM_UP SECONDS")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sagad:", err)
		os.Exit(1)
	}
}
