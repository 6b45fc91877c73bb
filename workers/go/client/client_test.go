package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sagad.dev/go/sagapb"
)

// server answers one call after the other as it is told to.
type server struct {
	sagapb.UnimplementedSagaServiceServer
	mu      sync.Mutex
	answers []any // *sagapb.Saga, *sagapb.WatchSagaResponse, error; nil: the stream ends
	asked   []proto.Message
}

func (s *server) next(request proto.Message) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if request != nil {
		s.asked = append(s.asked, request)
	}
	if len(s.answers) == 0 {
		return status.Error(codes.Internal, "the test says no more")
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer
}

func (s *server) saga(request proto.Message) (*sagapb.Saga, error) {
	switch answer := s.next(request).(type) {
	case *sagapb.Saga:
		return answer, nil
	case error:
		return nil, answer
	}
	return nil, status.Error(codes.Internal, "the test is wrong")
}

func (s *server) StartSaga(_ context.Context, r *sagapb.StartSagaRequest) (*sagapb.StartSagaResponse, error) {
	saga, err := s.saga(r)
	return &sagapb.StartSagaResponse{SagaId: saga.GetSagaId()}, err
}

func (s *server) GetSaga(_ context.Context, r *sagapb.GetSagaRequest) (*sagapb.Saga, error) {
	return s.saga(r)
}

func (s *server) WaitSaga(_ context.Context, r *sagapb.WaitSagaRequest) (*sagapb.Saga, error) {
	return s.saga(r)
}

func (s *server) CancelSaga(_ context.Context, r *sagapb.CancelSagaRequest) (*sagapb.Saga, error) {
	return s.saga(r)
}

func (s *server) WatchSaga(r *sagapb.WatchSagaRequest, stream grpc.ServerStreamingServer[sagapb.WatchSagaResponse]) error {
	var request proto.Message = r
	for {
		switch answer := s.next(request).(type) {
		case *sagapb.WatchSagaResponse:
			if err := stream.Send(answer); err != nil {
				return err
			}
		case error:
			return answer
		default:
			return nil
		}
		request = nil
	}
}

func connect(t *testing.T, answers ...any) (*Client, *server) {
	s := &server{answers: answers}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	sagapb.RegisterSagaServiceServer(g, s)
	go g.Serve(listener)
	t.Cleanup(g.Stop)
	// Nobody is at the first address.
	c, err := Dial(Options{Addresses: []string{"127.0.0.1:1", listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, s
}

func in(state sagapb.SagaState) *sagapb.Saga { return &sagapb.Saga{SagaId: "s-1", State: state} }

const (
	going  = sagapb.SagaState_SAGA_STATE_RUNNING
	parked = sagapb.SagaState_SAGA_STATE_PARKED
	ended  = sagapb.SagaState_SAGA_STATE_SUCCEEDED
)

func TestCalls(t *testing.T) {
	ctx := context.Background()
	c, s := connect(t, in(going), in(parked), in(going))
	started, err := c.Start(ctx, "greeting", wrapperspb.String("x"))
	if err != nil || started.SagaId != "s-1" {
		t.Fatal(started, err)
	}
	if saga, err := c.Get(ctx, ByUID("u")); err != nil || saga.State != parked {
		t.Error(saga, err)
	}
	if saga, err := c.Cancel(ctx, ByID("greeting", "s-1"), "why", "me"); err != nil || saga.State != going {
		t.Error(saga, err)
	}
	for i, want := range []proto.Message{
		&sagapb.StartSagaRequest{Definition: "greeting", Input: []byte("\n\x01x")},
		&sagapb.GetSagaRequest{Saga: &sagapb.SagaRef{Uid: "u"}, View: sagapb.SagaView_SAGA_VIEW_FULL},
		&sagapb.CancelSagaRequest{Saga: &sagapb.SagaRef{Definition: "greeting", SagaId: "s-1"}, Reason: "why", Actor: "me"},
	} {
		if !proto.Equal(s.asked[i], want) {
			t.Errorf("asked %v, wanted %v", s.asked[i], want)
		}
	}
}

func TestWaitGoesOn(t *testing.T) {
	c, s := connect(t, in(going), status.Error(codes.Unavailable, "it stops"), in(parked))
	saga, err := c.Wait(context.Background(), ByID("greeting", "s-1"))
	if err != nil || saga.State != parked || len(s.asked) != 3 {
		t.Error(saga, err, len(s.asked))
	}
	c, _ = connect(t, status.Error(codes.NotFound, "no such saga"))
	if _, err := c.Wait(context.Background(), ByID("greeting", "s-1")); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Wait(ctx, ByID("greeting", "s-1")); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}

func TestWatchGoesOnWhereItWas(t *testing.T) {
	told := func(state sagapb.SagaState, token string) *sagapb.WatchSagaResponse {
		return &sagapb.WatchSagaResponse{Saga: in(state), ResumeToken: token}
	}
	same := told(going, "b")
	same.Unchanged = true
	c, s := connect(t, told(going, "a"), same, status.Error(codes.Unavailable, "it stops"), told(ended, "c"), nil)
	var states []sagapb.SagaState
	for saga, err := range c.Watch(context.Background(), ByID("greeting", "s-1")) {
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, saga.State)
	}
	if len(states) != 2 || states[0] != going || states[1] != ended {
		t.Error(states)
	}
	if token := s.asked[1].(*sagapb.WatchSagaRequest).ResumeToken; token != "b" {
		t.Errorf("resumed at %q", token)
	}
}

func TestWatchEnds(t *testing.T) {
	c, _ := connect(t, status.Error(codes.NotFound, "no such saga"))
	for saga, err := range c.Watch(context.Background(), ByID("greeting", "s-1")) {
		if saga != nil || status.Code(err) != codes.NotFound {
			t.Error(saga, err)
		}
	}
	c, _ = connect(t, &sagapb.WatchSagaResponse{Saga: in(going)}, &sagapb.WatchSagaResponse{Saga: in(ended)})
	for range c.Watch(context.Background(), ByID("greeting", "s-1")) {
		break // enough
	}
	c, _ = connect(t, status.Error(codes.Unavailable, "it stops"))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for _, err := range c.Watch(ctx, ByID("greeting", "s-1")) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
}

func TestErrorOf(t *testing.T) {
	s, err := status.New(codes.InvalidArgument, "input: is no Payment").WithDetails(
		&errdetails.ErrorInfo{Reason: "BAD_INPUT", Domain: "sagad"},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "input", Description: "is no Payment"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	c, _ := connect(t, s.Err())
	_, err = c.Get(context.Background(), ByUID("u"))
	e := ErrorOf(err)
	if e.Code != codes.InvalidArgument || e.Reason != "BAD_INPUT" || e.Message != "input: is no Payment" ||
		e.Fields["input"] != "is no Payment" || e.RetryAfter != time.Second {
		t.Errorf("%+v", e)
	}
	if e := ErrorOf(errors.New("other")); e.Code != codes.Unknown || e.Message != "other" {
		t.Errorf("%+v", e)
	}
}
