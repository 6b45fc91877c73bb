// Package client starts sagas, looks at them, waits for them and takes them back.
//
//	c, err := client.Dial(client.Options{Addresses: []string{"127.0.0.1:7350"}})
//	started, err := c.Start(ctx, "settlement", payment)
//	saga, err := c.Wait(ctx, client.ByID("settlement", started.SagaId))
//
// It is thin: requests and answers are those of sagad.dev/go/sagapb, and Sagas has every call. Errors
// are gRPC statuses; ErrorOf reads what they tell.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"sagad.dev/go/sagapb"
)

// Options of a client.
type Options struct {
	Addresses   []string    // "host:port", one or more: the first that can be reached is used
	TLS         *tls.Config // nil: no TLS
	DialOptions []grpc.DialOption
}

// Client may be used by any number of goroutines.
type Client struct {
	Sagas sagapb.SagaServiceClient // every call there is
	conn  *grpc.ClientConn         // nil: it is the caller's
}

// New uses a connection of your own.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{Sagas: sagapb.NewSagaServiceClient(conn)}
}

// Dial connects, in the background, and again whenever the connection is lost.
func Dial(options Options) (*Client, error) {
	if len(options.Addresses) == 0 {
		return nil, errors.New("client: no address to connect to")
	}
	secrets := insecure.NewCredentials()
	if options.TLS != nil {
		secrets = credentials.NewTLS(options.TLS)
	}
	dial := []grpc.DialOption{grpc.WithTransportCredentials(secrets)}
	target := options.Addresses[0]
	if len(options.Addresses) > 1 {
		all := manual.NewBuilderWithScheme("sagad")
		state := resolver.State{}
		for _, address := range options.Addresses {
			state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
		}
		all.InitialState(state)
		dial = append(dial, grpc.WithResolvers(all))
		target = "sagad:///" + target
	}
	conn, err := grpc.NewClient(target, append(dial, options.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	c := New(conn)
	c.conn = conn
	return c, nil
}

// Close ends the connection that Dial made.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// ByID names a saga by its definition and business key, in the namespace "default".
func ByID(definition, sagaID string) *sagapb.SagaRef {
	return &sagapb.SagaRef{Definition: definition, SagaId: sagaID}
}

// ByUID names a saga by its UUID.
func ByUID(uid string) *sagapb.SagaRef { return &sagapb.SagaRef{Uid: uid} }

// Start starts a saga of a definition that makes its key of the input, or answers the one that has this
// key. It may be called again when it failed. For everything else: Sagas.StartSaga.
func (c *Client) Start(ctx context.Context, definition string, input proto.Message) (*sagapb.StartSagaResponse, error) {
	return c.StartWithID(ctx, definition, "", input)
}

// StartWithID is the same where the definition says no key.
func (c *Client) StartWithID(ctx context.Context, definition, sagaID string, input proto.Message) (*sagapb.StartSagaResponse, error) {
	bytes, err := proto.Marshal(input)
	if err != nil {
		return nil, fmt.Errorf("client: the input cannot be encoded: %w", err)
	}
	return c.Sagas.StartSaga(ctx, &sagapb.StartSagaRequest{Definition: definition, SagaId: sagaID, Input: bytes})
}

// Get answers the saga as it is, with its steps.
func (c *Client) Get(ctx context.Context, saga *sagapb.SagaRef) (*sagapb.Saga, error) {
	return c.Sagas.GetSaga(ctx, &sagapb.GetSagaRequest{Saga: saga, View: sagapb.SagaView_SAGA_VIEW_FULL})
}

const waitMax = 5 * time.Minute // the server's limit

// Wait answers when the saga has ended, or is parked, or when ctx is over (with its error).
func (c *Client) Wait(ctx context.Context, saga *sagapb.SagaRef) (*sagapb.Saga, error) {
	for {
		// The call's deadline is ctx's; a server that stops answers UNAVAILABLE, and another one may go on.
		got, err := c.Sagas.WaitSaga(ctx, &sagapb.WaitSagaRequest{Saga: saga, OrParked: true,
			Timeout: durationpb.New(waitMax), View: sagapb.SagaView_SAGA_VIEW_FULL}, grpc.WaitForReady(true))
		if err == nil && HasEnded(got) {
			return got, nil
		}
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				return nil, err
			}
			if problem := pause(ctx, err); problem != nil {
				return nil, problem
			}
		}
	}
}

// HasEnded tells whether nothing happens to the saga any more by itself: it is terminal, or parked.
func HasEnded(saga *sagapb.Saga) bool {
	switch saga.GetState() {
	case sagapb.SagaState_SAGA_STATE_RUNNING, sagapb.SagaState_SAGA_STATE_COMPENSATING:
		return false
	}
	return true
}

// Watch yields the saga as it is, and again after each change, until it is terminal. It watches on, at
// whichever server is there, when the stream breaks. An error is the last thing that it yields.
//
//	for saga, err := range c.Watch(ctx, client.ByID("settlement", "order-17")) {
func (c *Client) Watch(ctx context.Context, saga *sagapb.SagaRef) iter.Seq2[*sagapb.Saga, error] {
	return func(yield func(*sagapb.Saga, error) bool) {
		token := ""
		for {
			goOn, err := c.watchOnce(ctx, saga, &token, yield)
			if !goOn {
				return
			}
			if err != nil && isPassing(err) {
				err = pause(ctx, err)
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// isPassing: of Watch, another stream goes on with what this one began.
func isPassing(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Internal, codes.Unknown:
		return true
	}
	return false
}

// watchOnce: false if that was the end, or the caller has enough.
func (c *Client) watchOnce(ctx context.Context, saga *sagapb.SagaRef, token *string, yield func(*sagapb.Saga, error) bool) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Sagas.WatchSaga(ctx, &sagapb.WatchSagaRequest{Saga: saga, ResumeToken: *token,
		View: sagapb.SagaView_SAGA_VIEW_FULL}, grpc.WaitForReady(true))
	if err != nil {
		return true, err
	}
	for {
		message, err := stream.Recv()
		if err != nil {
			return !errors.Is(err, io.EOF), err
		}
		*token = message.ResumeToken
		if !message.Unchanged && !yield(message.Saga, nil) {
			return false, nil
		}
	}
}

// Cancel turns a saga back. It answers once that is durable; compensations follow.
func (c *Client) Cancel(ctx context.Context, saga *sagapb.SagaRef, reason, actor string) (*sagapb.Saga, error) {
	return c.Sagas.CancelSaga(ctx, &sagapb.CancelSagaRequest{Saga: saga, Reason: reason, Actor: actor})
}

// pause waits a little before a call is made again; not nil: ctx is over.
func pause(ctx context.Context, err error) error {
	wait := 200 * time.Millisecond
	if after := ErrorOf(err).RetryAfter; after > 0 {
		wait = min(after, 10*time.Second)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// Error is what a failed call tells.
type Error struct {
	Code       codes.Code
	Reason     string            // stable, for programs: "INPUT_MISMATCH"; "": none
	Message    string            // for people
	Fields     map[string]string // what is wrong, by the path of the field
	RetryAfter time.Duration     // 0: the server says nothing
}

// ErrorOf reads the error of a call; of other errors only Code (Unknown) and Message are set.
func ErrorOf(err error) Error {
	s, _ := status.FromError(err)
	e := Error{Code: s.Code(), Message: s.Message(), Fields: map[string]string{}}
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = d.Reason
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				e.Fields[v.Field] = v.Description
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = d.RetryDelay.AsDuration()
		}
	}
	return e
}
