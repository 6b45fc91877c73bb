package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"sagad.dev/go/sagapb"
)

// OutcomeError is what a handler says came of it, where that is not simply DONE. It may be wrapped. Make
// it with Reject, Retry, AlreadyDone, Unknown, NotDone or StillUnknown.
type OutcomeError struct {
	Outcome sagapb.Outcome
	// Code is stable and for programs, at most 128 bytes; Message is for people, and is cut after 1,024
	// bytes. Control characters become spaces.
	Code, Message string
	RetryAfter    time.Duration // Retry: not before; 0: as the definition says; at most 24 h
	Ours          bool          // AlreadyDone: the other side confirmed our idempotency key
	Err           error         // the cause, if there is one
}

func (e *OutcomeError) Error() string {
	text := strings.TrimPrefix(e.Outcome.String(), "OUTCOME_")
	for _, part := range []string{e.Code, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Unwrap answers the cause.
func (e *OutcomeError) Unwrap() error { return e.Err }

// Reject is a business no: this attempt had no effect, and another one would not help.
func Reject(code, message string) *OutcomeError {
	return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_REJECTED, Code: code, Message: message}
}

// Retry: this attempt certainly had no effect, since nothing was sent, or the other side said so. It is
// repeated, not before `after`; 0: as the definition says.
func Retry(code, message string, after time.Duration) *OutcomeError {
	return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_RETRY, Code: code, Message: message, RetryAfter: after}
}

// AlreadyDone: the other side says that it exists. `ours`: it confirmed that it is our key. The output is
// what the handler returns beside it:
//
//	return receipt, worker.AlreadyDone(true)
func AlreadyDone(ours bool) *OutcomeError {
	return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_ALREADY_DONE, Ours: ours}
}

// Unknown: it may have happened. Any other error of a handler counts as that, too, unless it proves that
// nothing was sent (Task.NothingSent).
func Unknown(code, message string) *OutcomeError {
	return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_UNKNOWN, Code: code, Message: message}
}

// NotDone is a probe's answer: the other side knows nothing of it.
func NotDone() *OutcomeError { return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_NOT_DONE} }

// StillUnknown is a probe's answer: it could not be found out now.
func StillUnknown(code, message string) *OutcomeError {
	return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_STILL_UNKNOWN, Code: code, Message: message}
}

// outcome is what is reported.
type outcome struct {
	kind       sagapb.Outcome
	output     []byte
	ours       bool
	code       string
	message    string
	retryAfter time.Duration
}

// outcomeOf says what a handler's answer means.
func (w *Worker) outcomeOf(task *Task, output []byte, err error) outcome {
	var said *OutcomeError
	if err != nil && !errors.As(err, &said) {
		said = w.classify(task, err)
	}
	o := outcome{kind: sagapb.Outcome_OUTCOME_DONE}
	if said != nil {
		o.kind = said.Outcome
	}
	switch o.kind {
	case sagapb.Outcome_OUTCOME_DONE, sagapb.Outcome_OUTCOME_ALREADY_DONE:
		if len(output) > w.outputMax {
			return outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "OUTPUT_TOO_LARGE",
				message: fmt.Sprintf("the output is of %d bytes, at most %d may be", len(output), w.outputMax)}
		}
		o.output = output
		o.ours = said != nil && said.Ours
	case sagapb.Outcome_OUTCOME_NOT_DONE:
	default:
		o.code, o.message = textOf(said.Code, nameMax), textOf(messageOf(said), messageMax)
		if o.code == "" {
			o.code = "UNSPECIFIED"
		}
		if o.kind == sagapb.Outcome_OUTCOME_RETRY {
			o.retryAfter = min(max(said.RetryAfter, 0), retryAfterMax)
		}
	}
	return o
}

func messageOf(e *OutcomeError) string {
	if e.Message == "" && e.Err != nil {
		return e.Err.Error()
	}
	return e.Message
}

func (w *Worker) classify(task *Task, err error) *OutcomeError {
	if w.options.Classify != nil {
		if said := w.options.Classify(task, err); said != nil {
			return said
		}
	}
	if task.NothingSent(err) {
		return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_RETRY, Code: "NOT_SENT", Err: err}
	}
	return &OutcomeError{Outcome: sagapb.Outcome_OUTCOME_UNKNOWN, Code: kindOf(err), Err: err}
}

// kindOf names the innermost error, "net.OpError" or "context.DeadlineExceeded".
func kindOf(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{{context.DeadlineExceeded, "context.DeadlineExceeded"}, {context.Canceled, "context.Canceled"}} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
}

// textOf makes a text that the server will take: UTF-8 without control characters, of at most so many
// bytes.
func textOf(text string, bytesMax int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return '?'
		case r < 0x20 || (r >= 0x7f && r < 0xa0):
			return ' '
		}
		return r
	}, text)
	if len(text) <= bytesMax {
		return text
	}
	for bytesMax > 0 && !utf8.RuneStart(text[bytesMax]) {
		bytesMax--
	}
	return text[:bytesMax]
}
