package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"sagad.dev/go/sagapb"
)

// Stop is a reason for a handler to end early.
type Stop int

// The reasons, each stronger than the one before.
const (
	StopNone      Stop = iota
	StopDraining       // the worker ends soon: finish if it does not take long
	StopCancelled      // the saga turned back or was stopped: an early end saves work
	StopLost           // not StillMine any more; the handler's context ends, too
)

func (s Stop) String() string {
	return [...]string{"none", "draining", "cancelled", "lost"}[s]
}

// ErrLost is the cause (context.Cause) for which a handler's context ends: 80 % of the last confirmed
// lease have passed, the lease was reported lost, or the attempt time is over.
var ErrLost = errors.New("sagad: the lease of this task is over")

// Operation is what a task asks for.
type Operation = sagapb.OperationKind

// The operations.
const (
	Action       = sagapb.OperationKind_OPERATION_KIND_ACTION
	Compensation = sagapb.OperationKind_OPERATION_KIND_COMPENSATION
	Probe        = sagapb.OperationKind_OPERATION_KIND_PROBE
)

// ActionOutcome is what is known of the action that a compensation is to take back.
type ActionOutcome = sagapb.ActionOutcome_Kind

// What is known of an action. ActionNone: the task is no compensation, and no probe of one.
const (
	ActionNone  = sagapb.ActionOutcome_KIND_UNSPECIFIED
	ActionDone  = sagapb.ActionOutcome_KIND_DONE
	ActionMaybe = sagapb.ActionOutcome_KIND_MAYBE
)

// Probed is what a probe asks about: the last attempt that may have taken effect.
type Probed struct {
	Operation     Operation // Action or Compensation
	Try           int32     // 0: it was none of this saga's
	Fence         int64
	Leased, Ended time.Time // by the database's clock; zero: not known
}

// Task is one operation of one saga. Its fields are not to be changed; its methods may be called from
// any goroutine, also after the handler has returned. One that was made by hand, for a test, has its fields
// alone, and is ours for ever (but see sagatest).
type Task struct {
	// The saga. SagaID is the business key.
	Namespace, Definition, SagaID string
	Run                           int32
	UID                           [16]byte
	Revision                      int32
	SagaStarted                   time.Time // by the database's clock
	Labels                        map[string]string

	Step      string
	Operation Operation
	Handler   string
	Try       int32 // counts from 1
	Guarded   bool
	// Fence is for your own database: a newer one wins.
	Fence int64
	// IdempotencyKey is for the third party: the same on every try. A probe's: that of the attempts it
	// asks about.
	IdempotencyKey string
	Traceparent    string // W3C trace context; "": none

	// RequestType is the full name of the request's type; "": the definition says none, and the request
	// is the saga's input. OutputType is that of the output; "": bytes.
	RequestType, OutputType string
	// SendBefore: nothing may be sent to the third party from then on, by the database's clock, since it
	// could arrive when the idempotency key is forgotten. Zero: no such time.
	SendBefore time.Time

	message  *sagapb.Task
	worker   *Worker
	entry    *entry
	calls    calls
	cancel   context.CancelCauseFunc
	stopping chan struct{}
	stopOnce sync.Once
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func newTask(w *Worker, e *entry) *Task {
	m := e.message
	return &Task{
		Namespace: m.Namespace, Definition: m.Definition, SagaID: m.SagaId, Run: m.Run, UID: e.key.uid,
		Revision: m.Revision, SagaStarted: timeOf(m.SagaStartTime), Labels: m.Labels,
		Step: m.Step, Operation: m.Operation, Handler: m.Handler, Try: m.Try, Guarded: m.Guarded,
		Fence: m.Fence, IdempotencyKey: m.IdempotencyKey, Traceparent: m.Traceparent,
		RequestType: m.RequestType, OutputType: m.OutputType, SendBefore: timeOf(m.SendBefore),
		message: m, worker: w, entry: e, stopping: make(chan struct{}),
	}
}

// Request is what the operation is asked: a message of RequestType, as the definition puts it together.
// Where it does not, the saga's input.
func (t *Task) Request() []byte {
	if t.RequestType != "" {
		return t.message.GetRequest()
	}
	return t.message.GetInput()
}

// Input is the saga's input, where the definition puts no request together; else nil.
func (t *Task) Input() []byte { return t.message.GetInput() }

// OutputOf is what an earlier step answered, where the definition puts no request together. False: it has
// no output, yet or ever.
func (t *Task) OutputOf(step string) ([]byte, bool) {
	for _, o := range t.message.GetOutputs() {
		if o.Step == step {
			return o.Output, true
		}
	}
	return nil, false
}

// Action is what is known of the action, for a compensation or a probe of one; its output if it is
// ActionDone.
func (t *Task) Action() (ActionOutcome, []byte) {
	a := t.message.GetAction()
	switch {
	case t.Operation != Compensation && (t.Operation != Probe || a == nil):
		return ActionNone, nil
	case a.GetKind() == ActionDone:
		return ActionDone, a.Output
	}
	return ActionMaybe, nil
}

// Probed is what a probe asks about. False: the task is no probe.
func (t *Task) Probed() (Probed, bool) {
	if t.Operation != Probe {
		return Probed{}, false
	}
	a := t.message.GetProbedAttempt()
	return Probed{Operation: t.message.GetProbed(), Try: a.GetTry(), Fence: a.GetFence(),
		Leased: timeOf(a.GetLeaseTime()), Ended: timeOf(a.GetEndTime())}, true
}

// LeaseLeft is the time until 80 % of the last confirmed lease have passed; 0: over.
func (t *Task) LeaseLeft() time.Duration {
	if t.worker == nil {
		return durationMax
	}
	t.worker.mu.Lock()
	defer t.worker.mu.Unlock()
	if t.entry.lease.lost {
		return 0
	}
	return max(t.entry.lease.end().Sub(t.worker.now()), 0)
}

// TimeLeft is the time until the attempt time is over; 0: over. It ends before SendBefore. The
// handler's context has it as its deadline.
func (t *Task) TimeLeft() time.Duration {
	if t.worker == nil {
		return durationMax
	}
	return max(t.entry.lease.attemptUntil.Sub(t.worker.now()), 0)
}

// StillMine is the last look before a call that cannot be taken back. False once 80 % of the last
// confirmed lease have passed, the lease was reported lost, or the attempt time is over: then do not make
// the call. Say Retry if nothing was sent before, Unknown otherwise.
func (t *Task) StillMine() bool { return t.LeaseLeft() > 0 }

// StopRequested is the strongest reason for which the handler may, or (StopLost) has to end now. Its
// report counts in any case.
func (t *Task) StopRequested() Stop {
	if t.worker == nil {
		return StopNone
	}
	t.worker.mu.Lock()
	defer t.worker.mu.Unlock()
	return t.worker.pool.stopOf(t.entry, t.worker.now())
}

// Stopping is closed with the first reason to stop, whichever it is; StopRequested says which. The
// handler's context ends for StopLost alone: a drain or a cancelled saga is no reason to break off a call
// whose outcome would then be unknown.
func (t *Task) Stopping() <-chan struct{} { return t.stopping }

// told is called once for each reason, each stronger than the one before.
func (t *Task) told(stop Stop) {
	t.stopOnce.Do(func() { close(t.stopping) })
	if stop == StopLost {
		t.cancel(ErrLost)
	}
}

// taskContext has the end of the attempt time as its deadline, so that clients can pass it on. What ends
// it is the worker.
type taskContext struct {
	context.Context
	deadline time.Time
}

func (c taskContext) Deadline() (time.Time, bool) { return c.deadline, true }

// start answers the context of the handler; with the worker's lock held.
func (t *Task) start(base context.Context, now time.Time) context.Context {
	ctx, cancel := context.WithCancelCause(base)
	t.cancel = cancel
	left := t.entry.lease.attemptUntil.Sub(now)
	return t.calls.watch(taskContext{ctx, time.Now().Add(left)})
}
