package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"sagad.dev/go/sagapb"
)

func newTestWorker(t *testing.T, change func(*Options)) *Worker {
	options := Options{Addresses: []string{"127.0.0.1:1"}, ID: "w"}
	if change != nil {
		change(&options)
	}
	w, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWhatAHandlersAnswerMeans(t *testing.T) {
	plain := newTestWorker(t, func(o *Options) { o.MaxOutput = 4 })
	custom := newTestWorker(t, func(o *Options) {
		o.Classify = func(_ *Task, err error) *OutcomeError {
			if err.Error() == "mine" {
				return Reject("MINE", "")
			}
			return nil
		}
	})
	for name, c := range map[string]struct {
		worker *Worker
		output string
		err    error
		want   outcome
	}{
		"a value":          {plain, "ok", nil, outcome{kind: sagapb.Outcome_OUTCOME_DONE, output: []byte("ok")}},
		"already done":     {plain, "ok", AlreadyDone(true), outcome{kind: sagapb.Outcome_OUTCOME_ALREADY_DONE, output: []byte("ok"), ours: true}},
		"not ours":         {plain, "", AlreadyDone(false), outcome{kind: sagapb.Outcome_OUTCOME_ALREADY_DONE, output: []byte("")}},
		"too much":         {plain, "12345", nil, outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "OUTPUT_TOO_LARGE", message: "the output is of 5 bytes, at most 4 may be"}},
		"rejected":         {plain, "no", Reject("NO_FUNDS", "none"), outcome{kind: sagapb.Outcome_OUTCOME_REJECTED, code: "NO_FUNDS", message: "none"}},
		"wrapped":          {plain, "", fmt.Errorf("debit: %w", Reject("A", "b")), outcome{kind: sagapb.Outcome_OUTCOME_REJECTED, code: "A", message: "b"}},
		"retry":            {plain, "", Retry("A", "b", time.Second), outcome{kind: sagapb.Outcome_OUTCOME_RETRY, code: "A", message: "b", retryAfter: time.Second}},
		"retry in a week":  {plain, "", Retry("A", "b", 200*time.Hour), outcome{kind: sagapb.Outcome_OUTCOME_RETRY, code: "A", message: "b", retryAfter: 24 * time.Hour}},
		"unknown":          {plain, "", Unknown("A", "b"), outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "A", message: "b"}},
		"not done":         {plain, "", NotDone(), outcome{kind: sagapb.Outcome_OUTCOME_NOT_DONE}},
		"still unknown":    {plain, "", StillUnknown("A", "b"), outcome{kind: sagapb.Outcome_OUTCOME_STILL_UNKNOWN, code: "A", message: "b"}},
		"no code":          {plain, "", Reject("", "b"), outcome{kind: sagapb.Outcome_OUTCOME_REJECTED, code: "UNSPECIFIED", message: "b"}},
		"any error":        {plain, "", errors.New("boom"), outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "errors.errorString", message: "boom"}},
		"deadline":         {plain, "", fmt.Errorf("x: %w", context.DeadlineExceeded), outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "context.DeadlineExceeded", message: "x: context deadline exceeded"}},
		"classified":       {custom, "", errors.New("mine"), outcome{kind: sagapb.Outcome_OUTCOME_REJECTED, code: "MINE"}},
		"not classified":   {custom, "", errors.New("other"), outcome{kind: sagapb.Outcome_OUTCOME_UNKNOWN, code: "errors.errorString", message: "other"}},
		"refused":          {plain, "", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, outcome{kind: sagapb.Outcome_OUTCOME_RETRY, code: "NOT_SENT", message: "dial: connection refused"}},
		"an error of ours": {plain, "", errors.Join(errors.New("a"), Retry("R", "", 0)), outcome{kind: sagapb.Outcome_OUTCOME_RETRY, code: "R"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.worker.outcomeOf(&Task{}, []byte(c.output), c.err)
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%+v, wanted %+v", got, c.want)
			}
		})
	}
}

func TestTextIsWhatTheServerTakes(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                   "plain",
		"a\nb\x00c\x7fd\u0085e":   "a b c d e",
		"bad \xff byte":           "bad ? byte",
		strings.Repeat("x", 2000): strings.Repeat("x", 1024),
		strings.Repeat("€", 400):  strings.Repeat("€", 341),
	} {
		if got := textOf(text, messageMax); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestTaskMadeByHand(t *testing.T) {
	task := &Task{Operation: Compensation}
	_, hasOutput := task.OutputOf("debit")
	action, _ := task.Action()
	_, isProbe := task.Probed()
	if !task.StillMine() || task.TimeLeft() <= 0 || task.StopRequested() != StopNone || task.Request() != nil ||
		hasOutput || isProbe || action != ActionMaybe {
		t.Error("it is not what its fields say")
	}
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func watchedTask() (*Task, context.Context) {
	task := &Task{}
	return task, task.calls.watch(context.Background())
}

func post(ctx context.Context, url string, keyed bool) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		return err
	}
	if keyed {
		request.Header.Set("Idempotency-Key", "k")
	}
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	return err
}

func TestWhatProvesThatNothingWasSent(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"dial":            {refused, true},
		"wrapped":         {fmt.Errorf("bank: %w", refused), true},
		"no such name":    {&net.DNSError{Err: "no such host", Name: "x.invalid"}, true},
		"read":            {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false},
		"one of two":      {errors.Join(refused, io.ErrUnexpectedEOF), false},
		"both of two":     {errors.Join(refused, refused), true},
		"gRPC, unwatched": {status.Error(codes.Unavailable, "connection refused"), false},
		"anything":        {io.EOF, false},
		"nothing":         {nil, false},
	} {
		if got := (&Task{}).NothingSent(c.err); got != c.want {
			t.Errorf("%s: %v, wanted %v", name, got, c.want)
		}
	}
}

func TestHTTPProof(t *testing.T) {
	task, ctx := watchedTask()
	if err := post(ctx, "http://"+closedPort(t), false); !task.NothingSent(err) {
		t.Errorf("refused: no proof in %v", err)
	}
	task, ctx = watchedTask()
	if err := post(ctx, "http://name.invalid/", false); !task.NothingSent(err) {
		t.Errorf("no such name: no proof in %v", err)
	}
	task, _ = watchedTask()
	if err := post(context.Background(), "http://"+closedPort(t), false); task.NothingSent(err) {
		t.Error("a call that was not watched proves something")
	}
	task, ctx = watchedTask()
	_ = post(ctx, "http://"+closedPort(t), false)
	if err := post(context.Background(), "http://"+closedPort(t), false); task.NothingSent(err) {
		t.Error("a call to one host proves something about another")
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	task, ctx = watchedTask()
	if err := post(ctx, strings.Replace(plain.URL, "http:", "https:", 1), false); !task.NothingSent(err) {
		t.Errorf("no TLS there: no proof in %v", err)
	}
}

// net/http sends a request with an Idempotency-Key again on a new connection; that one is refused, but the
// first was sent.
func TestARepeatedRequestProvesNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			_, _ = conn.Read(buffer)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_, _ = conn.Read(buffer) // the second request: read, and nobody answers
			listener.Close()
			conn.Close()
		}
	}()
	url := "http://" + listener.Addr().String()
	if err := post(context.Background(), url, true); err != nil {
		t.Fatal(err)
	}
	task, ctx := watchedTask()
	err = post(ctx, url, true)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("it was to be refused at last: %v", err)
	}
	if task.NothingSent(err) {
		t.Error("it was sent")
	}
}

func TestGRPCProof(t *testing.T) {
	ask := func(ctx context.Context, address string, options ...grpc.DialOption) error {
		conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err
	}
	task, ctx := watchedTask()
	if err := ask(ctx, closedPort(t), ProveSends()); !task.NothingSent(err) {
		t.Errorf("refused: no proof in %v", err)
	}
	task, ctx = watchedTask()
	_ = ask(ctx, closedPort(t), ProveSends())
	if task.NothingSent(status.Error(codes.Unavailable, "of another call")) {
		t.Error("the error of one call proves something about another")
	}
	task, ctx = watchedTask()
	if err := ask(ctx, closedPort(t)); task.NothingSent(err) {
		t.Error("without ProveSends there is no proof")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Unavailable, "it happened, but I do not feel well")
	}))
	go server.Serve(listener)
	defer server.Stop()
	task, ctx = watchedTask()
	if err := ask(ctx, listener.Addr().String(), ProveSends()); status.Code(err) != codes.Unavailable || task.NothingSent(err) {
		t.Errorf("UNAVAILABLE of a call that was sent proves nothing: %v", err)
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"Addresses are 1 to 16, not 0": func(o *Options) { o.Addresses = nil },
		"one of them is empty":         func(o *Options) { o.Addresses = []string{"a:1", ""} },
		"ID is 1 to 128":               func(o *Options) { o.ID = "a\nb" },
		"Concurrency":                  func(o *Options) { o.Concurrency = -1 },
		"Drain":                        func(o *Options) { o.Drain = 48 * time.Hour },
		"MaxMessage":                   func(o *Options) { o.MaxMessage = -1 },
	} {
		options := Options{Addresses: []string{"127.0.0.1:1"}, ID: "w"}
		change(&options)
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q", err, want)
		}
	}
	handler := func(context.Context, *Task) ([]byte, error) { return nil, nil }
	w := newTestWorker(t, nil)
	if err := w.Run(context.Background()); err == nil {
		t.Error("it runs without a handler")
	}
	w = newTestWorker(t, nil)
	for _, c := range []struct {
		name string
		most int
		run  Handler
		ok   bool
	}{{"a.b/c-d_1", 1, handler, true}, {"a.b/c-d_1", 1, handler, false}, {"", 1, handler, false}, {"ä", 1, handler, false},
		{"b", 0, handler, false}, {"b", 10001, handler, false}, {"b", 1, nil, false}} {
		if err := w.Handle(c.name, c.most, c.run); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.name, err)
		}
	}
}
