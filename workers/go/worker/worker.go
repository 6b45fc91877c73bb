// Package worker runs the steps of sagas in your process.
//
//	w, err := worker.New(worker.Options{Addresses: []string{"127.0.0.1:7350"}, ID: "settle-1"})
//	...
//	err = w.Handle("bank.v1.Settlement.DebitAccount", 16, worker.Typed(debit))
//	...
//	err = w.Run(ctx)
//
// It keeps one stream to each orchestrator, extends leases by itself however long a handler takes, and
// keeps each outcome until it is acknowledged, over any number of reconnects and by whichever
// orchestrator is there. A process that dies says nothing: its leases run out, which counts as UNKNOWN.
package worker

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"

	"sagad.dev/go/sagapb"
)

// Options of a worker. Zero is the default of each field but the first two.
type Options struct {
	// Addresses, 1 to 16: "host:port" or "unix:/path", one or all nodes of a database, each by an
	// address of its own; of a balancer its address alone.
	Addresses []string
	ID        string // stable name, 1-128 bytes, shown to operators
	// Concurrency is how many handlers run at a time, over all; 0: as many as their own limits add up to.
	// It bounds what runs: what is credited goes by the handlers' own limits, the rest waits here.
	Concurrency int
	// Drain is how long a drain waits for acknowledgements after the last handler has returned; 0: 30 s.
	Drain time.Duration
	// Signals: SIGTERM and SIGINT drain while Run runs; a second one ends the process.
	Signals bool

	TLS         *tls.Config // nil: no TLS
	DialOptions []grpc.DialOption
	MaxMessage  int // bytes of a message that may be received; 0: 8 MiB
	MaxOutput   int // bytes of an output; 0: 256 KiB, what the server takes unless it is told otherwise

	// Classify says what an error of a handler means that is no OutcomeError. nil from it: as without it,
	// RETRY if it proves that nothing was sent (Task.NothingSent), else UNKNOWN.
	Classify func(task *Task, err error) *OutcomeError
	Logger   *slog.Logger     // nil: slog.Default()
	Now      func() time.Time // nil: time.Now; for tests
}

// Stats counts since New.
type Stats struct {
	TasksStarted, ReportsAccepted, ReportsDuplicate, ReportsStale, LeasesLost uint64
	Connects                                                                  uint64 // times that an orchestrator said Welcome
}

// Worker serves handlers. Make it with New, give it handlers, then Run it once.
type Worker struct {
	options   Options
	log       *slog.Logger
	now       func() time.Time
	outputMax int

	mu       sync.Mutex
	pool     *pool
	streams  []*stream
	base     context.Context // of handlers
	ran      bool
	stopping bool          // Run is to return
	stop     chan struct{} // closed then
}

const tick = 100 * time.Millisecond

// New makes a worker. An error names the option that is wrong.
func New(options Options) (*Worker, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	instance := make([]byte, 16)
	if _, err := cryptorand.Read(instance); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	w := &Worker{options: options, log: options.Logger, now: options.Now,
		outputMax: options.MaxOutput, stop: make(chan struct{}),
		pool: newPool(options.ID, hex.EncodeToString(instance), rand.Int64N)}
	if w.log == nil {
		w.log = slog.Default()
	}
	if w.now == nil {
		w.now = time.Now
	}
	if w.outputMax == 0 {
		w.outputMax = outputMaxUsual
	}
	w.pool.concurrency = options.Concurrency
	if w.pool.drain = options.Drain; options.Drain == 0 {
		w.pool.drain = 30 * time.Second
	}
	for _, address := range options.Addresses {
		w.streams = append(w.streams, newStream(w, address))
	}
	return w, nil
}

func (o *Options) check() error {
	if len(o.Addresses) == 0 || len(o.Addresses) > addressesMax {
		return fmt.Errorf("worker: Addresses are 1 to %d, not %d", addressesMax, len(o.Addresses))
	}
	for _, address := range o.Addresses {
		if address == "" {
			return errors.New("worker: Addresses: one of them is empty")
		}
	}
	if !isText(o.ID) {
		return fmt.Errorf("worker: ID is 1 to %d bytes of text", nameMax)
	}
	if o.Concurrency < 0 {
		return fmt.Errorf("worker: Concurrency is 0 or more, not %d", o.Concurrency)
	}
	if o.Drain < 0 || o.Drain > drainMax {
		return fmt.Errorf("worker: Drain is 0 to %v, not %v", drainMax, o.Drain)
	}
	if o.MaxMessage < 0 || o.MaxOutput < 0 {
		return errors.New("worker: MaxMessage and MaxOutput are 0 or more")
	}
	return nil
}

func isText(s string) bool {
	return s != "" && len(s) <= nameMax && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// Handle serves a handler, before Run. Its name is 1-128 of [A-Za-z0-9._/-]. At most maxInFlight, 1 to
// 10,000, of its tasks run at a time; with one address that includes those that wait here.
func (w *Worker) Handle(name string, maxInFlight int, handler Handler) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	plain := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._/-", r))
	}
	switch {
	case w.ran:
		return fmt.Errorf("worker: handler %s: Run was called already", name)
	case name == "" || len(name) > nameMax || strings.IndexFunc(name, plain) >= 0:
		return fmt.Errorf("worker: a handler's name is 1 to %d of [A-Za-z0-9._/-], not %q", nameMax, name)
	case handler == nil:
		return fmt.Errorf("worker: handler %s: no function", name)
	case maxInFlight < 1 || maxInFlight > inFlightMax:
		return fmt.Errorf("worker: handler %s: maxInFlight is 1 to %d, not %d", name, inFlightMax, maxInFlight)
	case w.pool.byName[name] != nil:
		return fmt.Errorf("worker: handler %s is there already", name)
	case len(w.pool.handlers) == handlersMax:
		return fmt.Errorf("worker: more than %d handlers", handlersMax)
	}
	w.pool.addHandler(name, maxInFlight, handler)
	return nil
}

// Drain: take no more tasks, give back those that were not started, finish and report the others, end.
func (w *Worker) Drain() {
	w.mu.Lock()
	w.pool.startDrain(w.now())
	w.unlock()
}

// Stats answers the counters.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pool.stats
}

// Run serves until it is drained, by Drain, by the end of ctx, or by a signal (Options.Signals). It
// returns nil then, also when acknowledgements were still missing after Options.Drain: the orchestrator
// finds out by itself. It reconnects for ever, and waits for handlers to return, however long they take.
// Handlers get the values of ctx, but not its end.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	ran, handlers := w.ran, len(w.pool.handlers)
	w.ran = true
	w.base = context.WithoutCancel(ctx)
	w.mu.Unlock()
	if ran {
		return errors.New("worker: Run was called before")
	}
	if handlers == 0 {
		return errors.New("worker: no handler was given")
	}
	var signals chan os.Signal
	if w.options.Signals {
		signals = make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		defer signal.Stop(signals)
	}
	var streams sync.WaitGroup
	for _, s := range w.streams {
		streams.Go(s.run)
	}
	w.keepTime(ctx.Done(), signals)
	streams.Wait()
	return nil
}

// keepTime looks at the clock every 100 ms, until the worker is drained.
func (w *Worker) keepTime(done <-chan struct{}, signals chan os.Signal) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-done:
			done = nil
			w.Drain()
		case <-signals:
			signal.Stop(signals) // the second one ends the process
			w.Drain()
		case <-ticker.C:
			w.mu.Lock()
			w.pool.awake.beat(w.now())
			w.pool.tell = true
			for _, s := range w.streams {
				s.session.nudged = true
			}
			w.unlock()
		}
	}
}

// unlock does what follows from what was changed: starts handlers, tells those that have to stop, wakes
// the streams that got something to say.
func (w *Worker) unlock() {
	now := w.now()
	for e := w.pool.take(now); e != nil; e = w.pool.take(now) {
		e.task = newTask(w, e)
		go w.handle(e.task.start(w.base, now), e, e.task)
	}
	if w.pool.tell {
		for _, e := range w.pool.toTell(now) {
			e.task.told(e.told)
		}
	}
	if !w.stopping && w.pool.isDrained(now) {
		w.stopping = true
		close(w.stop)
	}
	for _, s := range w.streams {
		if s.session.nudged {
			s.session.nudged = false
			s.nudge()
		}
	}
	w.mu.Unlock()
}

// handle runs a handler on its goroutine.
func (w *Worker) handle(ctx context.Context, e *entry, task *Task) {
	result := outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "NO_OUTCOME", message: "the handler ended its goroutine"}
	defer func() {
		if panicked := recover(); panicked != nil {
			w.log.Error("a handler panicked: its outcome counts as UNKNOWN", "handler", task.Handler,
				"saga", task.SagaID, "fence", task.Fence, "panic", panicked, "stack", string(debug.Stack()))
			result = outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "PANIC", message: textOf(fmt.Sprint(panicked), messageMax)}
		}
		task.cancel(nil)
		w.mu.Lock()
		w.pool.finish(e, result, w.now())
		w.unlock()
	}()
	output, err := e.handler.run(ctx, task)
	result = w.outcomeOf(task, output, err)
}
