package sagatest

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"sagad.dev/go/sagapb"
	"sagad.dev/go/worker"
)

// Step is one step of a saga that is played.
type Step struct {
	Name                 string
	Action, Compensation string // handlers; "": none
	// Request puts together what the action, or the compensation, is asked; nil: the saga's input and the
	// outputs go along as they are. outputs are those of the steps that are done.
	Request func(operation worker.Operation, outputs map[string][]byte) proto.Message
}

// Played is what became of a saga.
type Played struct {
	// Succeeded: every action took effect. Else the steps before were compensated.
	Succeeded bool
	Reports   []*sagapb.TaskReport // in the order in which they came
	Steps     []string             // what each report is about: "debit ACTION"
	Outputs   map[string][]byte
}

const triesMax = 10

// Play runs the steps one after the other, and compensates those that took effect, or may have, in
// reverse order when one is rejected. RETRY and UNKNOWN are tried again at once, as of IDEMPOTENT steps; a
// test fails where that does not end.
func (o *Orchestrator) Play(sagaID string, input []byte, steps ...Step) *Played {
	o.t.Helper()
	p := &Played{Succeeded: true, Outputs: map[string][]byte{}}
	var ran []Step
	for _, step := range steps {
		report := o.operation(p, sagaID, input, step, worker.Action)
		if report.Outcome == sagapb.Outcome_OUTCOME_REJECTED {
			p.Succeeded = false
			break
		}
		p.Outputs[step.Name] = report.Output
		ran = append(ran, step)
	}
	for i := len(ran) - 1; i >= 0 && !p.Succeeded; i-- {
		if ran[i].Compensation != "" {
			o.operation(p, sagaID, input, ran[i], worker.Compensation)
		}
	}
	return p
}

func (o *Orchestrator) operation(p *Played, sagaID string, input []byte, step Step, operation worker.Operation) *sagapb.TaskReport {
	o.t.Helper()
	task := Task{Handler: step.Action, Operation: operation, SagaID: sagaID, Step: step.Name, Input: input}
	kind := "ACTION"
	if operation == worker.Compensation {
		output := p.Outputs[step.Name]
		task.Handler, task.ActionOutput, kind = step.Compensation, &output, "COMPENSATION"
	}
	if step.Request != nil {
		task.Request, task.Input = step.Request(operation, p.Outputs), nil
	} else {
		task.Outputs = p.Outputs
	}
	for try := int32(1); try <= triesMax; try++ {
		task.Try, task.Fence = try, 0
		report := o.Do(task)
		p.Reports = append(p.Reports, report)
		p.Steps = append(p.Steps, step.Name+" "+kind)
		switch report.Outcome {
		case sagapb.Outcome_OUTCOME_DONE, sagapb.Outcome_OUTCOME_ALREADY_DONE:
			return report
		case sagapb.Outcome_OUTCOME_REJECTED:
			if operation == worker.Action {
				return report
			}
		}
	}
	o.t.Fatalf("%s %s: %d tries, the last one said %v", step.Name, kind, triesMax, describe(p.Reports[len(p.Reports)-1]))
	return nil
}

func describe(r *sagapb.TaskReport) string {
	return fmt.Sprintf("%v %s %s", r.Outcome, r.ErrorCode, r.ErrorMessage)
}
