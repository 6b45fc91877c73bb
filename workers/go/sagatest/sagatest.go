// Package sagatest is an orchestrator for the tests of handlers: in your process, without a network and
// without a database. A real worker runs against it.
//
//	func TestDebit(t *testing.T) {
//		orchestrator := sagatest.Start(t)
//		orchestrator.Serve(func(w *worker.Worker) error {
//			return w.Handle("account.debit", 4, worker.Typed(debit))
//		})
//		report := orchestrator.Do(sagatest.Task{Handler: "account.debit", Request: &bankpb.Payment{Account: 7}})
//		if report.Outcome != sagapb.Outcome_OUTCOME_DONE { ...
//	}
package sagatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"sagad.dev/go/sagapb"
	"sagad.dev/go/worker"
)

// Task is what a handler is to be asked. Zero is a plain action; what is not said gets a value of its own.
type Task struct {
	Handler        string
	Operation      worker.Operation // zero: Action
	Definition     string           // "test"
	SagaID         string           // one of its own
	Step           string           // the handler's name
	Try            int32            // 1
	Fence          int64            // the next one
	IdempotencyKey string           // of saga id, step and operation
	Lease          time.Duration    // 30 s
	Attempt        time.Duration    // 1 min
	Labels         map[string]string
	Guarded        bool
	SendBefore     time.Time

	// Request is what the operation is asked: a message, whose type is then the request type. Input is
	// for handlers of bytes.
	Request    proto.Message
	Input      []byte
	Outputs    map[string][]byte // of earlier steps
	OutputType string

	// A compensation: the action took effect and answered this; nil: it may have.
	ActionOutput *[]byte
	// A probe: what it asks about.
	Probed        worker.Operation
	ProbedAttempt *sagapb.ProbedAttempt
}

// Orchestrator hands tasks to the worker of the test. Its methods may be called by any goroutine.
type Orchestrator struct {
	t        testing.TB
	listener *bufconn.Listener
	server   *grpc.Server

	mu        sync.Mutex
	changed   *sync.Cond
	session   *session // of the worker that is connected
	nextFence int64
	attempts  map[int64]*Attempt
	closed    bool
}

// session is one stream of the worker.
type session struct {
	send   sync.Mutex
	stream grpc.BidiStreamingServer[sagapb.WorkerMessage, sagapb.ServerMessage]
	end    context.CancelFunc
	credit map[string]uint64 // what is left of it
	sent   map[string]uint64
}

// Attempt is a task that was handed out.
type Attempt struct {
	o      *Orchestrator
	fence  int64
	uid    []byte
	lost   bool
	report *sagapb.TaskReport
	done   chan struct{} // closed when its report came
}

const (
	patience     = 30 * time.Second // of a test, for a worker that does not do what it should
	defaultLease = 30 * time.Second
)

// Start makes an orchestrator that ends with the test.
func Start(t testing.TB) *Orchestrator {
	o := &Orchestrator{t: t, listener: bufconn.Listen(1 << 20), server: grpc.NewServer(), attempts: map[int64]*Attempt{}}
	o.changed = sync.NewCond(&o.mu)
	sagapb.RegisterWorkerServiceServer(o.server, &service{o: o})
	go func() { _ = o.server.Serve(o.listener) }() // ends with Stop, as it is to
	t.Cleanup(func() {
		o.mu.Lock()
		o.closed = true
		o.changed.Broadcast()
		o.mu.Unlock()
		o.server.Stop()
	})
	return o
}

// Options are those of a worker that connects to it. Change what you like beside Addresses and
// DialOptions.
func (o *Orchestrator) Options() worker.Options {
	return worker.Options{Addresses: []string{"passthrough:///sagatest"}, ID: "sagatest", Drain: time.Second,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return o.listener.DialContext(ctx)
		})}}
}

// Serve runs a worker with the handlers that setUp gives it, and drains it when the test ends. One a time.
func (o *Orchestrator) Serve(setUp func(*worker.Worker) error) *worker.Worker {
	o.t.Helper()
	w, err := worker.New(o.Options())
	if err == nil {
		err = setUp(w)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	o.Run(w)
	return w
}

// Run is Serve for a worker of your own.
func (o *Orchestrator) Run(w *worker.Worker) {
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	o.t.Cleanup(func() {
		w.Drain()
		if err := <-ended; err != nil {
			o.t.Error(err)
		}
	})
}

// Do has a task done, and answers what was reported.
func (o *Orchestrator) Do(task Task) *sagapb.TaskReport {
	o.t.Helper()
	return o.Begin(task).Wait()
}

// Begin hands a task out, once the worker has credit for it.
func (o *Orchestrator) Begin(task Task) *Attempt {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if task.Fence == 0 {
		task.Fence = o.nextFence + 1
	}
	o.nextFence = max(o.nextFence, task.Fence)
	message, err := task.message()
	if err != nil {
		o.t.Fatal(err)
	}
	ok := o.await(func() bool {
		s := o.session
		return s != nil && s.sent[task.Handler] < s.credit[task.Handler]
	})
	if !ok {
		o.t.Fatalf("no worker with a free slot serves %q", task.Handler)
	}
	a := &Attempt{o: o, fence: task.Fence, uid: message.SagaUid, done: make(chan struct{})}
	o.attempts[task.Fence] = a
	o.session.sent[task.Handler]++
	o.say(&sagapb.ServerMessage{Command: &sagapb.ServerMessage_Tasks{Tasks: &sagapb.Tasks{Tasks: []*sagapb.Task{message}}}})
	return a
}

// await waits for a condition, with the lock held; false: it takes too long.
func (o *Orchestrator) await(condition func() bool) bool {
	until := time.Now().Add(patience)
	timer := time.AfterFunc(patience, o.changed.Broadcast)
	defer timer.Stop()
	for !condition() {
		if o.closed || !time.Now().Before(until) {
			return false
		}
		o.changed.Wait()
	}
	return true
}

// say sends to the worker, with the lock held; what is lost with a stream is the test's own doing.
func (o *Orchestrator) say(m *sagapb.ServerMessage) {
	if o.session == nil {
		return
	}
	o.session.send.Lock()
	defer o.session.send.Unlock()
	_ = o.session.stream.Send(m)
}

// Wait answers what the worker reported.
func (a *Attempt) Wait() *sagapb.TaskReport {
	a.o.t.Helper()
	select {
	case <-a.done:
		return a.report
	case <-time.After(patience):
		a.o.t.Fatalf("no report of the task with fence %d", a.fence)
		return nil
	}
}

// Lose takes the lease away: the handler's context ends.
func (a *Attempt) Lose() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	a.lost = true
	a.o.say(&sagapb.ServerMessage{Command: &sagapb.ServerMessage_Extended{Extended: &sagapb.Extended{
		Leases: []*sagapb.Extended_Lease{{SagaUid: a.uid, Fence: a.fence}}}}})
}

// Cancel tells the worker that the saga turned back.
func (a *Attempt) Cancel() {
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	a.o.say(&sagapb.ServerMessage{Command: &sagapb.ServerMessage_CancelHint{
		CancelHint: &sagapb.CancelHint{SagaUid: a.uid, Fence: a.fence}}})
}

// Disconnect breaks the worker's stream, and returns when it is gone; the worker comes back by itself.
func (o *Orchestrator) Disconnect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gone := o.session; gone != nil {
		gone.end()
		o.await(func() bool { return o.session != gone })
	}
}

// message is the task as the wire has it.
func (t *Task) message() (*sagapb.Task, error) {
	fallBack := func(text *string, value string) {
		if *text == "" {
			*text = value
		}
	}
	if t.Operation == 0 {
		t.Operation = worker.Action
	}
	fallBack(&t.Definition, "test")
	fallBack(&t.SagaID, fmt.Sprintf("saga-%d", t.Fence))
	fallBack(&t.Step, t.Handler)
	fallBack(&t.IdempotencyKey, fmt.Sprintf("%s/%s/%d", t.SagaID, t.Step, t.Operation))
	if t.Lease == 0 {
		t.Lease = defaultLease
	}
	if t.Attempt == 0 {
		t.Attempt = time.Minute
	}
	m := &sagapb.Task{SagaUid: binary.BigEndian.AppendUint64(make([]byte, 8), uint64(t.Fence)), Namespace: "default",
		Definition: t.Definition, Revision: 1, SagaId: t.SagaID, Run: 1, SagaStartTime: timestamppb.New(time.Unix(1700000000, 0)),
		Step: t.Step, Operation: t.Operation, Handler: t.Handler, Try: max(t.Try, 1), Fence: t.Fence,
		IdempotencyKey: t.IdempotencyKey, Input: t.Input, Lease: durationpb.New(t.Lease),
		AttemptRemaining: durationpb.New(t.Attempt), Labels: t.Labels, Guarded: t.Guarded,
		Probed: t.Probed, ProbedAttempt: t.ProbedAttempt, OutputType: t.OutputType}
	if !t.SendBefore.IsZero() {
		m.SendBefore = timestamppb.New(t.SendBefore)
	}
	if t.Request != nil {
		bytes, err := proto.Marshal(t.Request)
		if err != nil {
			return nil, fmt.Errorf("sagatest: the request cannot be encoded: %w", err)
		}
		m.Request, m.RequestType = bytes, string(t.Request.ProtoReflect().Descriptor().FullName())
	}
	for step, output := range t.Outputs {
		m.Outputs = append(m.Outputs, &sagapb.StepOutput{Step: step, Output: output})
	}
	if t.Operation == worker.Compensation {
		m.Action = &sagapb.ActionOutcome{Kind: worker.ActionMaybe}
		if t.ActionOutput != nil {
			m.Action = &sagapb.ActionOutcome{Kind: worker.ActionDone, Output: *t.ActionOutput}
		}
	}
	return m, nil
}
