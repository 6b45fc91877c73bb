package sagatest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"sagad.dev/go/sagapb"
	"sagad.dev/go/sagatest"
	"sagad.dev/go/worker"
)

func TestTypedHandler(t *testing.T) {
	o := sagatest.Start(t)
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("double", 2, worker.Typed(func(_ context.Context, task *worker.Task, in *wrapperspb.Int64Value) (*wrapperspb.Int64Value, error) {
			if in.Value < 0 {
				return nil, worker.Reject("NEGATIVE", "only more than nothing is doubled")
			}
			if task.Try > 1 {
				return wrapperspb.Int64(2 * in.Value), worker.AlreadyDone(true)
			}
			return wrapperspb.Int64(2 * in.Value), nil
		}))
	})
	for name, c := range map[string]struct {
		task sagatest.Task
		want string
	}{
		"done":         {sagatest.Task{Request: wrapperspb.Int64(21)}, "OUTCOME_DONE"},
		"already done": {sagatest.Task{Request: wrapperspb.Int64(21), Try: 2}, "OUTCOME_ALREADY_DONE"},
		"rejected":     {sagatest.Task{Request: wrapperspb.Int64(-1)}, "OUTCOME_REJECTED NEGATIVE"},
		"no message":   {sagatest.Task{Input: []byte{0xff}}, "OUTCOME_REJECTED BAD_REQUEST"},
		"wrong type":   {sagatest.Task{Request: wrapperspb.String("x")}, "OUTCOME_RETRY WRONG_TYPE"},
		"wrong output": {sagatest.Task{Request: wrapperspb.Int64(1), OutputType: "bank.v1.Receipt"}, "OUTCOME_RETRY WRONG_TYPE"},
	} {
		c.task.Handler = "double"
		report := o.Do(c.task)
		if got := strings.TrimSpace(fmt.Sprint(report.Outcome, " ", report.ErrorCode)); got != c.want {
			t.Errorf("%s: %s, wanted %s (%s)", name, got, c.want, report.ErrorMessage)
		}
	}
}

func TestHandlerThatPanicsIsUnknown(t *testing.T) {
	o := sagatest.Start(t)
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("h", 1, func(context.Context, *worker.Task) ([]byte, error) { panic("boom") })
	})
	if report := o.Do(sagatest.Task{Handler: "h"}); report.Outcome != sagapb.Outcome_OUTCOME_UNKNOWN || report.ErrorCode != "PANIC" {
		t.Error(report)
	}
}

func TestContextEndsWhenTheLeaseIsLost(t *testing.T) {
	o := sagatest.Start(t)
	started := make(chan struct{})
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("h", 1, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Minute || !task.StillMine() {
				return nil, errors.New("no deadline, or not ours")
			}
			close(started)
			<-ctx.Done()
			if task.StillMine() || task.StopRequested() != worker.StopLost || !errors.Is(context.Cause(ctx), worker.ErrLost) {
				return nil, errors.New("it is still ours")
			}
			return nil, worker.Retry("STOPPED", "", 0)
		})
	})
	attempt := o.Begin(sagatest.Task{Handler: "h"})
	<-started
	attempt.Lose()
	if report := attempt.Wait(); report.ErrorCode != "STOPPED" {
		t.Error(report)
	}
}

func TestCancelIsToldWithoutEndingTheContext(t *testing.T) {
	o := sagatest.Start(t)
	started := make(chan struct{})
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("h", 1, func(ctx context.Context, task *worker.Task) ([]byte, error) {
			close(started)
			<-task.Stopping()
			return []byte(task.StopRequested().String()), ctx.Err()
		})
	})
	attempt := o.Begin(sagatest.Task{Handler: "h"})
	<-started
	attempt.Cancel()
	if report := attempt.Wait(); string(report.Output) != "cancelled" {
		t.Error(report)
	}
}

func TestReportOutlivesItsStream(t *testing.T) {
	o := sagatest.Start(t)
	started, goOn := make(chan struct{}), make(chan struct{})
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("h", 1, func(context.Context, *worker.Task) ([]byte, error) {
			close(started)
			<-goOn
			return []byte("out"), nil
		})
	})
	attempt := o.Begin(sagatest.Task{Handler: "h"})
	<-started
	o.Disconnect()
	close(goOn)
	if report := attempt.Wait(); string(report.Output) != "out" {
		t.Error(report)
	}
}

func TestHundredsInFlight(t *testing.T) {
	const count = 500
	o := sagatest.Start(t)
	var running atomic.Int64
	all := make(chan struct{})
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("h", count, func(context.Context, *worker.Task) ([]byte, error) {
			if running.Add(1) == count {
				close(all)
			}
			<-all
			return nil, nil
		})
	})
	var attempts []*sagatest.Attempt
	for range count {
		attempts = append(attempts, o.Begin(sagatest.Task{Handler: "h"}))
	}
	for _, attempt := range attempts {
		attempt.Wait()
	}
}

func TestPlayCompensatesInReverseOrder(t *testing.T) {
	o := sagatest.Start(t)
	o.Serve(func(w *worker.Worker) error {
		for name, handler := range map[string]worker.Handler{
			"debit": func(_ context.Context, task *worker.Task) ([]byte, error) {
				if task.Try == 1 {
					return nil, errors.New("no answer in time")
				}
				return []byte("receipt"), worker.AlreadyDone(true)
			},
			"refund": func(_ context.Context, task *worker.Task) ([]byte, error) {
				_, output := task.Action()
				return append([]byte("back: "), output...), nil
			},
			"ledger": func(_ context.Context, task *worker.Task) ([]byte, error) {
				output, _ := task.OutputOf("debit")
				return output, nil
			},
			"reverse": func(context.Context, *worker.Task) ([]byte, error) { return nil, nil },
			"risk":    func(context.Context, *worker.Task) ([]byte, error) { return nil, worker.Reject("NO", "") },
		} {
			if err := w.Handle(name, 2, handler); err != nil {
				return err
			}
		}
		return nil
	})
	played := o.Play("order-1", []byte("in"),
		sagatest.Step{Name: "debit", Action: "debit", Compensation: "refund"},
		sagatest.Step{Name: "ledger", Action: "ledger", Compensation: "reverse"},
		sagatest.Step{Name: "risk", Action: "risk"})
	want := "[debit ACTION debit ACTION ledger ACTION risk ACTION ledger COMPENSATION debit COMPENSATION]"
	if got := fmt.Sprint(played.Steps); played.Succeeded || got != want {
		t.Errorf("%v %s, wanted %s", played.Succeeded, got, want)
	}
	if got := string(played.Reports[5].Output); got != "back: receipt" {
		t.Errorf("the compensation got %q", got)
	}
}

func BenchmarkTasks(b *testing.B) {
	o := sagatest.Start(b)
	o.Serve(func(w *worker.Worker) error {
		return w.Handle("h", 64, func(context.Context, *worker.Task) ([]byte, error) { return []byte("ok"), nil })
	})
	attempts := make(chan *sagatest.Attempt, b.N)
	b.ResetTimer()
	go func() {
		for range b.N {
			attempts <- o.Begin(sagatest.Task{Handler: "h", Input: []byte("input")})
		}
		close(attempts)
	}()
	for attempt := range attempts {
		attempt.Wait()
	}
}
