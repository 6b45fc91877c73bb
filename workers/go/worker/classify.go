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
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// calls counts what was called with a task's context. It is what can prove that nothing was sent: the
// error alone cannot, since clients repeat by themselves. net/http sends a POST with an Idempotency-Key
// again when its connection broke, and the error is then that of the second connection.
type calls struct {
	asked atomic.Int64 // calls that wanted a connection
	sent  atomic.Int64 // those that got one, and may have sent something
}

type callsKey struct{}

// watch adds the counters to a context, and the hooks by which net/http tells them.
func (c *calls) watch(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, callsKey{}, c)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.asked.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { c.sent.Add(1) },
	})
}

// ProveSends is a dial option for your own gRPC clients. With it a call that was made with the task's
// context and never left, since no connection could be made, is reported as RETRY. Without it every failed
// call is UNKNOWN: the code UNAVAILABLE says nothing about what was sent.
func ProveSends() grpc.DialOption { return grpc.WithStatsHandler(sendWatcher{}) }

type sendWatcher struct{}

func (sendWatcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sendWatcher) HandleRPC(ctx context.Context, event stats.RPCStats) {
	c, _ := ctx.Value(callsKey{}).(*calls)
	if c == nil {
		return
	}
	switch event.(type) {
	case *stats.Begin:
		c.asked.Add(1)
	case *stats.OutHeader:
		c.sent.Add(1)
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
	return err != nil && t.calls.sent.Load() == 0 && isUnsent(err, t.calls.asked.Load() > 0)
}

// isUnsent: `watched` calls were made, none of which had a connection.
func isUnsent(err error, watched bool) bool {
	switch e := err.(type) {
	case *url.Error:
		return watched && isConnecting(e.Err)
	case interface{ GRPCStatus() *status.Status }:
		return watched
	case interface{ SafeToRetry() bool }: // pgx: before anything was sent
		return e.SafeToRetry()
	case *net.DNSError:
		return true
	case *net.OpError:
		return e.Op == "dial"
	case interface{ Unwrap() []error }: // one of several proves nothing about the others
		for _, inner := range e.Unwrap() {
			if !isUnsent(inner, watched) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	}
	if isConnectError(err) {
		return true
	}
	inner := errors.Unwrap(err)
	return inner != nil && isUnsent(inner, watched)
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
