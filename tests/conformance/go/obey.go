package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sagad.dev/go/worker"
)

// script is what a task's request says.
type script struct {
	Do      string   `json:"do"`
	Output  string   `json:"output"`
	Size    int      `json:"size"`
	Ours    bool     `json:"ours"`
	Code    string   `json:"code"`
	Message string   `json:"message"`
	AfterMS int64    `json:"after_ms"`
	MS      int64    `json:"ms"`
	Client  string   `json:"client"`
	Port    int      `json:"port"`
	Steps   []string `json:"steps"`
	Labels  []string `json:"labels"`
	Then    *script  `json:"then"`
}

func (p *program) obey(ctx context.Context, task *worker.Task, request []byte) ([]byte, error) {
	var s script
	if err := json.Unmarshal(request, &s); err != nil {
		return nil, worker.Reject("NO_SCRIPT", err.Error())
	}
	return p.do(ctx, task, &s, request)
}

func (p *program) do(ctx context.Context, task *worker.Task, s *script, request []byte) ([]byte, error) {
	switch s.Do {
	case "done":
		return []byte(s.Output), nil
	case "echo":
		return request, nil
	case "done_size":
		return bytes.Repeat([]byte("x"), s.Size), nil
	case "request_size":
		return []byte(strconv.Itoa(len(task.Request()))), nil
	case "already_done":
		return []byte(s.Output), worker.AlreadyDone(s.Ours)
	case "describe":
		return describe(task, s)
	case "rejected":
		return nil, worker.Reject(s.Code, s.Message)
	case "retry":
		return nil, worker.Retry(s.Code, s.Message, time.Duration(s.AfterMS)*time.Millisecond)
	case "unknown":
		return nil, worker.Unknown(s.Code, s.Message)
	case "not_done":
		return nil, worker.NotDone()
	case "still_unknown":
		return nil, worker.StillUnknown(s.Code, s.Message)
	case "raise":
		return nil, errors.New(s.Message)
	case "panic":
		panic(s.Message)
	case "refused", "sent_then_cut":
		return nil, call(ctx, s)
	}
	if err := p.wait(task, s); err != nil {
		return nil, err
	}
	if s.Then == nil {
		return nil, nil
	}
	return p.do(ctx, task, s.Then, request)
}

// wait does what comes before a `then`.
func (p *program) wait(task *worker.Task, s *script) error {
	duration := time.Duration(s.MS) * time.Millisecond
	switch s.Do {
	case "sleep":
		time.Sleep(duration)
	case "wait_stop":
		<-task.Stopping()
		p.say(event{"event": "stop", "fence": fenceText(task), "reason": task.StopRequested().String()})
	case "wait_go":
		<-p.mayGo(task.Fence)
	case "still_mine":
		p.stillMine(task, fenceText(task))
	case "cpu":
		for until := time.Now().Add(duration); time.Now().Before(until); {
		}
	default:
		return worker.Reject("NO_SCRIPT", fmt.Sprintf("do: %q is unknown", s.Do))
	}
	return nil
}

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func timeText(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func operationText(o worker.Operation) string {
	return strings.TrimPrefix(o.String(), "OPERATION_KIND_")
}

func describe(t *worker.Task, s *script) ([]byte, error) {
	outputs, labels := map[string]any{}, map[string]any{}
	for _, step := range s.Steps {
		outputs[step] = nil
		if output, ok := t.OutputOf(step); ok {
			outputs[step] = base64Of(output)
		}
	}
	for _, name := range s.Labels {
		labels[name] = nil
		if value, ok := t.Labels[name]; ok {
			labels[name] = value
		}
	}
	action, actionOutput := t.Action()
	actionText := map[worker.ActionOutcome]string{
		worker.ActionNone: "NONE", worker.ActionDone: "DONE", worker.ActionMaybe: "MAYBE"}[action]
	var probed any
	if q, ok := t.Probed(); ok {
		probed = event{"operation": operationText(q.Operation), "try": q.Try, "fence": strconv.FormatInt(q.Fence, 10),
			"lease_time": timeText(q.Leased), "end_time": timeText(q.Ended)}
	}
	return json.Marshal(event{
		"namespace": t.Namespace, "definition": t.Definition, "saga_id": t.SagaID, "run": t.Run,
		"saga_uid": base64Of(t.UID[:]), "revision": t.Revision, "saga_start_time": timeText(t.SagaStarted),
		"step": t.Step, "operation": operationText(t.Operation), "handler": t.Handler, "try": t.Try,
		"fence": fenceText(t), "idempotency_key": t.IdempotencyKey, "input": base64Of(t.Input()),
		"request": base64Of(t.Request()), "request_type": t.RequestType, "output_type": t.OutputType,
		"outputs": outputs, "action": actionText, "action_output": base64Of(actionOutput), "probed": probed,
		"labels": labels, "traceparent": t.Traceparent, "guarded": t.Guarded, "send_before": timeText(t.SendBefore),
		"time_left_ms": t.TimeLeft().Milliseconds(), "lease_left_ms": t.LeaseLeft().Milliseconds(),
	})
}
