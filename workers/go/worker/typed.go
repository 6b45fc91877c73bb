package worker

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"sagad.dev/go/sagapb"
)

// Handler does one operation of one step. The bytes that it returns are the output, and no error is
// DONE; what errors mean is said at OutcomeError. It is called on a goroutine of its own. A panic counts as
// UNKNOWN.
//
// The context ends when the task is not ours any more (ErrLost); its deadline is the attempt's end.
type Handler func(ctx context.Context, task *Task) ([]byte, error)

// Typed makes a Handler of a function with your generated messages as request and output:
//
//	w.Handle("bank.v1.Settlement.DebitAccount", 16, worker.Typed(debit))
//
//	func debit(ctx context.Context, task *worker.Task, in *bankpb.Payment) (*bankpb.Receipt, error)
//
// It is not called for a request that is no such message (REJECTED, BAD_REQUEST), nor where the definition
// names other types (RETRY, WRONG_TYPE: another version of the worker may have them). What it returns
// beside AlreadyDone is the output, too.
func Typed[In, Out proto.Message](handle func(context.Context, *Task, In) (Out, error)) Handler {
	return func(ctx context.Context, task *Task) ([]byte, error) {
		var none Out
		if err := checkType("output", task.OutputType, none); err != nil {
			return nil, err
		}
		in, err := Request[In](task)
		if err != nil {
			return nil, err
		}
		out, err := handle(ctx, task, in)
		var said *OutcomeError
		if err != nil && !(errors.As(err, &said) && said.Outcome == sagapb.Outcome_OUTCOME_ALREADY_DONE) {
			return nil, err
		}
		bytes, problem := proto.Marshal(out)
		if problem != nil {
			return nil, Unknown("OUTPUT_NOT_ENCODED", problem.Error())
		}
		return bytes, err
	}
}

func checkType(what, declared string, message proto.Message) error {
	ours := string(message.ProtoReflect().Descriptor().FullName())
	if declared == "" || declared == ours {
		return nil
	}
	return Retry("WRONG_TYPE", fmt.Sprintf("the %s is %s, this worker has %s", what, declared, ours), 0)
}

// Request is the task's request as a message. Its errors are such that a handler may return them.
func Request[In proto.Message](task *Task) (In, error) {
	var none In
	if err := checkType("request", task.RequestType, none); err != nil {
		return none, err
	}
	in, err := decode[In](task.Request())
	if err != nil {
		return none, Reject("BAD_REQUEST", err.Error())
	}
	return in, nil
}

// Output is what an earlier step answered, as a message. False: it has no output, or not of this type.
func Output[Out proto.Message](task *Task, step string) (Out, bool) {
	bytes, ok := task.OutputOf(step)
	out, err := decode[Out](bytes)
	return out, ok && err == nil
}

func decode[M proto.Message](bytes []byte) (M, error) {
	var none M
	message := none.ProtoReflect().New().Interface().(M)
	return message, proto.Unmarshal(bytes, message)
}
