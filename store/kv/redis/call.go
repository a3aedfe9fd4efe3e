package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	driver "github.com/redis/go-redis/v9"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// An errorClass classifies an error of the driver.
type errorClass struct {
	cause         string // label for the metrics
	maybeExecuted bool   // the server may have executed the call
	retryable     bool   // another attempt can succeed soon
	full          bool   // the server has no free memory
	explain       string // cause and remedy, as text for an operator; set when the server cannot execute calls now
}

// refusals lists the errors by which a server refuses to execute anything, by the first
// word of their text. Scripts return them before their first write or never, so nothing
// has been written. Servers before Redis 7 put the word, after a hyphen, into the text
// of another error.
var refusals = []struct {
	word string
	errorClass
}{
	{"LOADING", errorClass{cause: "loading", retryable: true, explain: "the Redis server is loading its data after a start: wait until it is done"}},
	{"READONLY", errorClass{cause: "readonly", retryable: true, explain: "the Redis server is a read-only replica: let the URL name the primary, or the Sentinels that know it"}},
	{"MASTERDOWN", errorClass{cause: "masterdown", retryable: true, explain: "the Redis server is a replica that has lost its primary: let the URL name the primary, or the Sentinels that know it"}},
	{"NOREPLICAS", errorClass{cause: "noreplicas", retryable: true, explain: "the Redis server takes no writes because too few replicas follow it: bring them back, or lower min-replicas-to-write"}},
	{"BUSY", errorClass{cause: "busy", retryable: true, explain: "the Redis server is busy with a script of another program: end it with SCRIPT KILL if it does not end by itself"}},
	{"ERR max number of clients", errorClass{cause: "maxclients", retryable: true, explain: "the Redis server has no room for another connection: raise its maxclients, or lower the pool size of its clients"}},
	{"OOM", errorClass{cause: "oom", full: true, explain: "the Redis server has reached its maxmemory: raise maxmemory, or free memory; nothing can be written until then"}},
	{"CLUSTERDOWN", errorClass{cause: "clusterdown", retryable: true, explain: "the Redis server says that its cluster is down: use a primary without cluster mode"}},
	{"TRYAGAIN", errorClass{cause: "tryagain", retryable: true, explain: "the Redis server asks to try again: look at the server's log if this error continues"}},
	{"UNBLOCKED", errorClass{cause: "unblocked", retryable: true, explain: "the Redis server changed its role during a command"}},
	{"MISCONF", errorClass{cause: "misconf", explain: "the Redis server takes no writes because it cannot save its data: check its log for a full or failing disk"}},
	{"NOAUTH", errorClass{cause: "auth", explain: "the Redis server asks for a password: put the password into the URL"}},
	{"WRONGPASS", errorClass{cause: "auth", explain: "the Redis server refuses the user or the password in the URL: correct the URL"}},
	{"NOPERM", errorClass{cause: "auth", explain: "the Redis user lacks a permission: allow it all commands on the keys of the prefix (+@all ~<prefix>*)"}},
}

// classifyError classifies an error that the driver returned for a call with context ctx.
func classifyError(ctx context.Context, err error) errorClass {
	text := err.Error()
	if strings.Contains(text, "sentinels specified in configuration are unreachable") {
		if strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") {
			return errorClass{cause: "auth", explain: "the Sentinels refuse user or password: the URL holds the login of the servers, set the login of the Sentinels separately"}
		}
		return errorClass{cause: "sentinel", retryable: true, explain: "no Sentinel knows the Redis primary: check that the Sentinels run and know its name"}
	}
	if reply, ok := errors.AsType[driver.Error](err); ok {
		text = reply.Error()
		for _, r := range refusals {
			if strings.HasPrefix(text, r.word) || strings.Contains(text, "-"+r.word+" ") {
				return r.errorClass
			}
		}
		return errorClass{cause: "reply", explain: "the Redis server refuses a command: look at its log, and check that rowmill supports this server and its version"}
	}
	var op *net.OpError
	var distrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, driver.ErrClosed):
		return errorClass{cause: "closed"}
	case errors.Is(err, driver.ErrPoolTimeout), errors.Is(err, driver.ErrPoolExhausted):
		return errorClass{cause: "pool", retryable: true, explain: "all connections to the Redis server are in use: it answers slowly, or the pool is too small"}
	case errors.As(err, &distrusted):
		return errorClass{cause: "tls", explain: "the Redis server's certificate is not trusted: name the file of the authority that signed it"}
	case errors.As(err, &op) && op.Op == "dial", // or a TLS handshake that took too long:
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return errorClass{cause: "dial", retryable: true, explain: "the Redis server cannot be reached: check that it runs"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return errorClass{cause: "context", maybeExecuted: true}
	}
	return errorClass{cause: "connection", maybeExecuted: true, retryable: true, explain: "the Redis server does not answer or breaks its connections: check its log, its load and its maxclients"}
}

// retryCall repeats a call until the server answers, at most as long as Timeouts.Retry allows.
// If the last attempt of a write fails and the server may have executed any attempt, the error is
// store.ErrOutcomeUnknown.
func (e *Backend) retryCall(ctx context.Context, write bool, call func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	start := time.Now()
	defer func() { e.latency.Observe(time.Since(start).Seconds()) }()
	var v errorClass // class of the error of the last attempt
	maybeExecuted := false
	err := retry.Redis.WithTimeLimit(e.config.Timeouts.Retry).Do(ctx, func() error {
		err := call(ctx)
		if err == nil || errors.Is(err, driver.Nil) {
			return nil
		}
		v = classifyError(ctx, err)
		e.failures.WithLabelValues(v.cause).Inc()
		if v.retryable {
			e.failedAt.Store(time.Now().UnixNano())
		}
		maybeExecuted = maybeExecuted || v.maybeExecuted
		return err
	}, func(error) bool { return v.retryable }, nil)
	if err != nil {
		return e.callError(ctx, write && maybeExecuted, v, err)
	}
	return nil
}

// ask returns the result of a call that writes nothing. It repeats the call as retryCall does.
func ask[T any](ctx context.Context, e *Backend, call func(context.Context) (T, error)) (result T, err error) {
	err = e.retryCall(ctx, false, func(ctx context.Context) (err error) {
		result, err = call(ctx)
		return err
	})
	return result, err
}

// callError returns the error of a call after the last attempt has failed with err, an
// error of the given class. unknown means that the server may have executed a write.
func (e *Backend) callError(ctx context.Context, unknown bool, class errorClass, err error) error {
	switch {
	case class.cause == "closed":
		err = kv.ErrClosed
	case class.full:
		err = fmt.Errorf("%w: %s: %w", rowmill.ErrFull, class.explain, err)
	case class.explain != "":
		err = fmt.Errorf("%w: %s: %w", rowmill.ErrUnavailable, class.explain, err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	if unknown {
		e.unknown.Inc()
		err = fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, err)
	}
	return err
}
