package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// calls remembers what was called with a task's context. It is what can prove that nothing was sent: the
// error alone cannot, since clients repeat by themselves. net/http sends a POST with an Idempotency-Key
// again when its connection broke, and the error is then that of the second connection.
type calls struct {
	mu    sync.Mutex
	sent  bool            // one of them got a connection, and may have sent something
	hosts map[string]bool // that requests of net/http wanted connections to
	rpcs  []string        // the errors of those that were never sent
}

type callsKey struct{}

// watch adds them to a context, and the hooks by which net/http tells them.
func (c *calls) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, callsKey{}, c)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(host string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.hosts == nil {
				c.hosts = map[string]bool{}
			}
			c.hosts[host] = true
		},
		GotConn: func(httptrace.GotConnInfo) { c.markSent() },
	})
}

func (c *calls) markSent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = true
}

// ProveSends is a dial option for your own gRPC clients. With it a call that was made with the task's
// context and never left, since no connection could be made, is reported as RETRY. Without it every failed
// call is UNKNOWN: the code UNAVAILABLE says nothing about what was sent.
func ProveSends() grpc.DialOption { return grpc.WithStatsHandler(sendWatcher{}) }

type sendWatcher struct{}

// rpc is one attempt of a call.
type rpc struct {
	calls *calls
	sent  bool
}

type rpcKey struct{}

func (sendWatcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	if c, ok := ctx.Value(callsKey{}).(*calls); ok {
		return context.WithValue(ctx, rpcKey{}, &rpc{calls: c})
	}
	return ctx
}

func (sendWatcher) HandleRPC(ctx context.Context, event stats.RPCStats) {
	r, ok := ctx.Value(rpcKey{}).(*rpc)
	if !ok {
		return
	}
	switch e := event.(type) {
	case *stats.OutHeader:
		r.calls.mu.Lock()
		defer r.calls.mu.Unlock()
		r.sent, r.calls.sent = true, true
	case *stats.End:
		r.calls.mu.Lock()
		defer r.calls.mu.Unlock()
		if !r.sent && e.Error != nil {
			r.calls.rpcs = append(r.calls.rpcs, status.Convert(e.Error).String())
		}
	}
}

func (sendWatcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sendWatcher) HandleConn(context.Context, stats.ConnStats) {}

// NothingSent tells whether an error proves that the call behind it sent nothing: no connection was
// made (refused, unreachable, no such name, no TLS).
//   - net/http: if the request was made with the context of the handler.
//   - gRPC: the same, and if the connection was made with ProveSends.
//   - database/sql (pgx, lib/pq, go-sql-driver/mysql) and net: by the error itself.
//
// False once a call with the handler's context had a connection.
func (t *Task) NothingSent(err error) bool {
	t.calls.mu.Lock()
	defer t.calls.mu.Unlock()
	return err != nil && !t.calls.sent && t.calls.proves(err)
}

// proves: none of the calls had a connection, and this error is of one that wanted one.
func (c *calls) proves(err error) bool {
	switch e := err.(type) {
	case *url.Error:
		return c.hosts[hostOf(e.URL)] && isConnecting(e.Err)
	case interface{ GRPCStatus() *status.Status }:
		return slices.Contains(c.rpcs, e.GRPCStatus().String())
	case interface{ SafeToRetry() bool }: // pgx: before anything was sent
		return e.SafeToRetry()
	case *net.DNSError:
		return true
	case *net.OpError:
		return e.Op == "dial"
	case interface{ Unwrap() []error }: // one of several proves nothing about the others
		for _, inner := range e.Unwrap() {
			if !c.proves(inner) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	}
	if isConnectError(err) {
		return true
	}
	inner := errors.Unwrap(err)
	return inner != nil && c.proves(inner)
}

// hostOf is "host:port" as net/http has it.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// isConnecting: of net/http, the connection could not be made, TLS included.
func isConnecting(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	return errors.As(err, &dns) || (errors.As(err, &op) && op.Op == "dial") ||
		errors.As(err, &certificate) || errors.As(err, &noTLS) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// isConnectError: pgx's error of a connection that could not be made. By its name, so that nobody needs
// pgx who does not use it.
func isConnectError(err error) bool {
	t := reflect.TypeOf(err)
	return t.Kind() == reflect.Pointer && t.Elem().Name() == "ConnectError" &&
		strings.HasPrefix(t.Elem().PkgPath(), "github.com/jackc/pgx/") &&
		strings.HasSuffix(t.Elem().PkgPath(), "/pgconn")
}
