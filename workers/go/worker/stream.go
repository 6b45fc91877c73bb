package worker

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"sagad.dev/go/sagapb"
)

const closeLinger = time.Second // for what the server still says after our last word

// stream carries a session: it connects, sends what the session says, hands it what comes, and
// connects again.
type stream struct {
	worker  *Worker
	session *session
	address string
	wake    chan struct{}
}

var errOver = errors.New("silent for too long, or it goes away")

func newStream(w *Worker, address string) *stream {
	return &stream{worker: w, session: w.pool.addSession(), address: address, wake: make(chan struct{}, 1)}
}

func (s *stream) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) run() {
	for s.waitToConnect() {
		err := s.serve()
		s.worker.mu.Lock()
		now := s.worker.now()
		warn := s.session.phase == online && !s.worker.pool.draining
		s.session.lost(now)
		wait := s.session.reconnect.Sub(now)
		stopping := s.worker.stopping
		s.worker.unlock()
		switch {
		case stopping:
		case warn:
			s.worker.log.Warn("stream to the orchestrator ended", "address", s.address, "err", err, "retry", wait)
		default:
			s.worker.log.Info("stream to the orchestrator ended", "address", s.address, "err", err, "retry", wait)
		}
	}
}

// waitToConnect: false when the worker stops.
func (s *stream) waitToConnect() bool {
	for {
		s.worker.mu.Lock()
		wait := s.session.reconnect.Sub(s.worker.now())
		if wait <= 0 && !s.session.isWanted() {
			wait = tick
		}
		s.worker.mu.Unlock()
		if wait <= 0 {
			select {
			case <-s.worker.stop:
				return false
			default:
				return true
			}
		}
		select {
		case <-s.worker.stop:
			return false
		case <-s.wake:
		case <-time.After(wait):
		}
	}
}

func (s *stream) dial() (*grpc.ClientConn, error) {
	o := &s.worker.options
	secrets := insecure.NewCredentials()
	if o.TLS != nil {
		secrets = credentials.NewTLS(o.TLS)
	}
	// What the name service says about retries is not for a stream that knows better.
	most := o.MaxMessage
	if most == 0 {
		most = receivedMax
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(secrets), grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most))}
	return grpc.NewClient(s.address, append(options, o.DialOptions...)...)
}

// serve is one stream, from the connection to its end. A connection of its own each time: back-off is
// the session's.
func (s *stream) serve() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.worker.mu.Lock()
	s.session.open(s.worker.now())
	s.worker.unlock()
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close() // nothing is left on it that could fail
	opened := make(chan struct{})
	go s.watch(ctx, cancel, opened)
	call, err := sagapb.NewWorkerServiceClient(conn).Work(ctx)
	close(opened)
	if err != nil {
		return s.causeOf(ctx, err)
	}
	received := make(chan struct{})
	go func() {
		cancel(s.receive(call))
		close(received)
	}()
	s.send(ctx, cancel, call)
	select { // the server may have something to say about our last words
	case <-received:
	case <-time.After(closeLinger):
		cancel(errOver)
		<-received
	}
	return s.causeOf(ctx, ctx.Err())
}

// watch ends a stream that cannot be opened, or on which a message cannot be sent, in time.
func (s *stream) watch(ctx context.Context, cancel context.CancelCauseFunc, opened <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.worker.stop:
			select {
			case <-opened: // send says the last words
				select {
				case <-ctx.Done():
				case <-time.After(closeLinger):
				}
			default:
			}
			cancel(errOver)
			return
		case <-ticker.C:
			s.worker.mu.Lock()
			now := s.worker.now()
			over := s.session.isOver(now) && now.Sub(s.session.heard) >= welcomeMax
			s.worker.mu.Unlock()
			if over {
				cancel(errOver)
			}
		}
	}
}

func (s *stream) causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// send says what there is to say until the stream is over or the worker stops.
func (s *stream) send(ctx context.Context, cancel context.CancelCauseFunc, call grpc.BidiStreamingClient[sagapb.WorkerMessage, sagapb.ServerMessage]) {
	for {
		s.worker.mu.Lock()
		now := s.worker.now()
		var message *sagapb.WorkerMessage
		over := s.worker.stopping || s.session.isOver(now)
		if !over {
			message = s.session.next(now)
		}
		s.worker.unlock()
		if over {
			_ = call.CloseSend() // it never fails
			return
		}
		if message != nil {
			if call.Send(message) != nil {
				return // receive says why
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// receive hands the session what comes, and answers why the stream ended.
func (s *stream) receive(call grpc.BidiStreamingClient[sagapb.WorkerMessage, sagapb.ServerMessage]) error {
	for {
		message, err := call.Recv()
		if err != nil {
			return err
		}
		s.worker.mu.Lock()
		now := s.worker.now()
		problems, err := s.session.receive(message, s.worker.pool.awake.since(now), now)
		s.session.nudged = true
		s.worker.unlock()
		for _, p := range problems {
			s.worker.log.Warn("the outcome counts as UNKNOWN: its output is not of the declared type",
				"saga_uid", uidText(p.entry.key.uid), "fence", p.entry.key.fence,
				"handler", p.entry.handler.name, "problem", p.text)
		}
		if err != nil {
			return err
		}
	}
}
