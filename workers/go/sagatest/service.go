package sagatest

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"sagad.dev/go/sagapb"
)

type service struct {
	sagapb.UnimplementedWorkerServiceServer
	o *Orchestrator
}

// Work is one stream of a worker.
func (s *service) Work(stream grpc.BidiStreamingServer[sagapb.WorkerMessage, sagapb.ServerMessage]) error {
	ctx, end := context.WithCancel(stream.Context())
	defer end()
	here := &session{stream: stream, end: end, credit: map[string]uint64{}, sent: map[string]uint64{}}
	ended := make(chan error, 1)
	go func() { ended <- s.listen(here) }()
	select {
	case err := <-ended:
		s.gone(here)
		return err
	case <-ctx.Done():
		s.gone(here)
		return status.Error(codes.Unavailable, "the test ended this stream")
	}
}

func (s *service) gone(here *session) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	if s.o.session == here {
		s.o.session = nil
	}
	s.o.changed.Broadcast()
}

func (s *service) listen(here *session) error {
	for {
		m, err := here.stream.Recv()
		if err != nil {
			return nil // it went away, or ended its side
		}
		s.o.mu.Lock()
		s.o.hear(here, m)
		s.o.changed.Broadcast()
		s.o.mu.Unlock()
	}
}

// hear takes a message of the worker in, with the lock held.
func (o *Orchestrator) hear(here *session, m *sagapb.WorkerMessage) {
	if m.GetHello() != nil {
		o.session = here
	} else if o.session != here {
		return // the test has ended this stream
	}
	switch c := m.Command.(type) {
	case *sagapb.WorkerMessage_Hello:
		o.say(&sagapb.ServerMessage{Command: &sagapb.ServerMessage_Welcome{Welcome: &sagapb.Welcome{Node: "sagatest", Session: 1}}})
	case *sagapb.WorkerMessage_Credit:
		for _, h := range c.Credit.Handlers {
			here.credit[h.Handler] = h.Total
		}
	case *sagapb.WorkerMessage_Report:
		o.acknowledge(c.Report.Reports)
	case *sagapb.WorkerMessage_Extend:
		o.extend(c.Extend.Leases)
	}
}

func (o *Orchestrator) acknowledge(reports []*sagapb.TaskReport) {
	acks := &sagapb.Acks{}
	for _, report := range reports {
		ack := &sagapb.Ack{SagaUid: report.SagaUid, Fence: report.Fence, Result: sagapb.Ack_RESULT_STALE}
		if a := o.attempts[report.Fence]; a != nil && a.report != nil {
			ack.Result = sagapb.Ack_RESULT_DUPLICATE
		} else if a != nil {
			if !a.lost {
				ack.Result = sagapb.Ack_RESULT_ACCEPTED
			}
			a.report = report
			close(a.done)
		}
		acks.Acks = append(acks.Acks, ack)
	}
	o.say(&sagapb.ServerMessage{Command: &sagapb.ServerMessage_Acks{Acks: acks}})
}

func (o *Orchestrator) extend(leases []*sagapb.HeldLease) {
	answer := &sagapb.Extended{}
	for _, l := range leases {
		extended := &sagapb.Extended_Lease{SagaUid: l.SagaUid, Fence: l.Fence}
		if a := o.attempts[l.Fence]; a != nil && !a.lost {
			extended.Lease = durationpb.New(defaultLease)
		}
		answer.Leases = append(answer.Leases, extended)
	}
	o.say(&sagapb.ServerMessage{Command: &sagapb.ServerMessage_Extended{Extended: answer}})
}
