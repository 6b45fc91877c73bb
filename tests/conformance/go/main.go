// The worker of the conformance suite, on the Go SDK: see tests/conformance/README.md. It uses the
// SDK's public interface alone.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"sagad.dev/go/worker"
)

type event map[string]any

// program is the worker and what stdin needs of the tasks that run.
type program struct {
	worker *worker.Worker
	offset atomic.Int64 // of the injected clock, ns

	output  sync.Mutex
	mu      sync.Mutex
	running map[int64]*worker.Task
	may     map[int64]chan struct{} // closed by `go`
}

func (p *program) now() time.Time { return time.Now().Add(time.Duration(p.offset.Load())) }

func (p *program) say(e event) {
	p.output.Lock()
	defer p.output.Unlock()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "conformance worker:", err)
	os.Exit(1)
}

func number(name string) int {
	text := os.Getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		fail(fmt.Errorf("%s is no number: %q", name, text))
	}
	return n
}

func (p *program) setUp() error {
	var err error
	p.worker, err = worker.New(worker.Options{
		Addresses:   strings.Split(os.Getenv("SAGA_ADDRESSES"), ","),
		ID:          os.Getenv("SAGA_WORKER_ID"),
		Concurrency: number("SAGA_CONCURRENCY"),
		Drain:       time.Duration(number("SAGA_DRAIN_MS")) * time.Millisecond,
		MaxMessage:  number("SAGA_MAX_MESSAGE"),
		MaxOutput:   number("SAGA_OUTPUT_MAX"),
		Signals:     os.Getenv("SAGA_SIGNALS") == "1",
		Now:         p.now,
	})
	if err != nil {
		return err
	}
	for _, text := range strings.Split(os.Getenv("SAGA_HANDLERS"), ",") {
		parts := append(strings.Split(text, ":"), "", "")
		most, err := strconv.Atoi(parts[1])
		if err != nil {
			return fmt.Errorf("SAGA_HANDLERS: %q is no name:max", text)
		}
		handler := p.bytes
		if parts[2] == "typed" {
			handler = worker.Typed(p.typed)
		}
		if err := p.worker.Handle(parts[0], most, handler); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) bytes(ctx context.Context, task *worker.Task) ([]byte, error) {
	p.begin(task)
	defer p.end(task)
	return p.obey(ctx, task, task.Request())
}

func (p *program) typed(ctx context.Context, task *worker.Task, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
	p.begin(task)
	defer p.end(task)
	output, err := p.obey(ctx, task, []byte(in.Value))
	return wrapperspb.String(string(output)), err
}

func fenceText(task *worker.Task) string { return strconv.FormatInt(task.Fence, 10) }

func (p *program) begin(task *worker.Task) {
	p.mu.Lock()
	p.running[task.Fence] = task
	p.mu.Unlock()
	p.say(event{"event": "started", "handler": task.Handler, "fence": fenceText(task), "try": task.Try})
}

func (p *program) end(task *worker.Task) {
	p.mu.Lock()
	delete(p.running, task.Fence)
	p.mu.Unlock()
	p.say(event{"event": "finished", "fence": fenceText(task)})
}

// mayGo is closed once `go FENCE` came.
func (p *program) mayGo(fence int64) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.may[fence] == nil {
		p.may[fence] = make(chan struct{})
	}
	return p.may[fence]
}

func (p *program) stillMine(task *worker.Task, fence string) {
	p.say(event{"event": "still_mine", "fence": fence, "mine": task != nil && task.StillMine()})
}

func (p *program) command(line string) error {
	word, argument, _ := strings.Cut(line, " ")
	switch word {
	case "drain":
		p.worker.Drain()
		return nil
	case "stats":
		s := p.worker.Stats()
		p.say(event{"event": "stats", "tasks_started": s.TasksStarted, "reports_accepted": s.ReportsAccepted,
			"reports_duplicate": s.ReportsDuplicate, "reports_stale": s.ReportsStale,
			"leases_lost": s.LeasesLost, "connects": s.Connects})
		return nil
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(argument, "+"), 10, 64)
	if err != nil {
		return fmt.Errorf("stdin: %q: %w", line, err)
	}
	switch word {
	case "go":
		close(p.mayGo(n))
	case "still_mine":
		p.mu.Lock()
		task := p.running[n]
		p.mu.Unlock()
		p.stillMine(task, argument)
	case "clock":
		p.offset.Add(n * int64(time.Millisecond))
	default:
		return fmt.Errorf("stdin: unknown command %q", line)
	}
	return nil
}

func (p *program) listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := p.command(lines.Text()); err != nil {
			fail(err)
		}
	}
	os.Exit(0)
}

func main() {
	p := &program{running: map[int64]*worker.Task{}, may: map[int64]chan struct{}{}}
	if err := p.setUp(); err != nil {
		fail(err)
	}
	go p.listen()
	p.say(event{"event": "ready", "clients": []string{"http", "grpc", "postgresql", "mysql", "dns"}})
	if err := p.worker.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "conformance worker:", err)
		p.say(event{"event": "ended", "code": 1})
		os.Exit(1)
	}
	p.say(event{"event": "ended", "code": 0})
}
