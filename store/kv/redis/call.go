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
)

// errClosed is returned by every method of a store that was closed.
var errClosed = errors.New("record store is closed")

// A verdict is what an error of the driver says about the call.
type verdict struct {
	cause   string // short, for the metrics
	doubt   bool   // the server may have executed it
	again   bool   // another attempt may succeed soon
	full    bool   // the server has no room
	explain string // cause and remedy for an operator, where the server cannot serve now
}

// refusals are the server's refusals to execute anything, by the word that
// leads their text. Scripts give them before their first write or not at all,
// so nothing has happened. Servers before Redis 7 put the word, behind a
// hyphen, into the text of an error of their own.
var refusals = []struct {
	word string
	verdict
}{
	{"LOADING", verdict{cause: "loading", again: true, explain: "the Redis server is loading its data after a start: wait until it has"}},
	{"READONLY", verdict{cause: "readonly", again: true, explain: "the Redis server is a read-only replica: let the URL name the primary, or the Sentinels that know it"}},
	{"MASTERDOWN", verdict{cause: "masterdown", again: true, explain: "the Redis server is a replica that has lost its primary: let the URL name the primary, or the Sentinels that know it"}},
	{"NOREPLICAS", verdict{cause: "noreplicas", again: true, explain: "the Redis server takes no writes because too few replicas follow it: bring them back, or lower min-replicas-to-write"}},
	{"BUSY", verdict{cause: "busy", again: true, explain: "the Redis server is busy with a script of somebody's: end it with SCRIPT KILL if it does not end by itself"}},
	{"ERR max number of clients", verdict{cause: "maxclients", again: true, explain: "the Redis server has no room for another connection: raise its maxclients, or lower the pool size of its clients"}},
	{"OOM", verdict{cause: "oom", full: true, explain: "the Redis server has reached its maxmemory: raise it, or free memory; nothing can be written until then"}},
	{"CLUSTERDOWN", verdict{cause: "clusterdown", again: true, explain: "the Redis server says that its cluster is down: use a primary without cluster mode"}},
	{"TRYAGAIN", verdict{cause: "tryagain", again: true, explain: "the Redis server asks to try again: look at its log if it goes on"}},
	{"UNBLOCKED", verdict{cause: "unblocked", again: true, explain: "the Redis server has changed its role during a command"}},
	{"MISCONF", verdict{cause: "misconf", explain: "the Redis server takes no writes because it cannot save its data: look for a full or failing disk in its log"}},
	{"NOAUTH", verdict{cause: "auth", explain: "the Redis server asks for a password: put it into the URL"}},
	{"WRONGPASS", verdict{cause: "auth", explain: "the Redis server refuses user or password of the URL: correct them"}},
	{"NOPERM", verdict{cause: "auth", explain: "the Redis user lacks a permission: allow it all commands on the keys of the prefix (+@all ~<prefix>*)"}},
}

// judge sorts an error that the driver gave a call with that context.
func judge(ctx context.Context, err error) verdict {
	text := err.Error()
	if strings.Contains(text, "sentinels specified in configuration are unreachable") {
		if strings.Contains(text, "NOAUTH") || strings.Contains(text, "WRONGPASS") {
			return verdict{cause: "auth", explain: "the Sentinels refuse user or password: the URL holds those of the servers, give the Sentinels' beside it"}
		}
		return verdict{cause: "sentinel", again: true, explain: "no Sentinel says where the Redis primary is: look whether they run and know its name"}
	}
	var reply driver.Error
	if errors.As(err, &reply) {
		text = reply.Error()
		for _, r := range refusals {
			if strings.HasPrefix(text, r.word) || strings.Contains(text, "-"+r.word+" ") {
				return r.verdict
			}
		}
		return verdict{cause: "reply", explain: "the Redis server refuses a command: look at its log, and whether it is a Redis that nodes support"}
	}
	var op *net.OpError
	var distrusted *tls.CertificateVerificationError
	switch {
	case errors.Is(err, driver.ErrClosed):
		return verdict{cause: "closed"}
	case errors.Is(err, driver.ErrPoolTimeout), errors.Is(err, driver.ErrPoolExhausted):
		return verdict{cause: "pool", again: true, explain: "all connections to the Redis server are in use: it answers slowly, or the pool is too small"}
	case errors.As(err, &distrusted):
		return verdict{cause: "tls", explain: "the Redis server's certificate is not trusted: name the file of the authority that signed it"}
	case errors.As(err, &op) && op.Op == "dial", // or a TLS handshake that has taken too long:
		errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return verdict{cause: "dial", again: true, explain: "the Redis server cannot be reached: look whether it runs"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return verdict{cause: "context", doubt: true}
	}
	return verdict{cause: "connection", doubt: true, again: true, explain: "the Redis server does not answer or breaks its connections: look at its log, its load and its maxclients"}
}

// try repeats a call until the server has answered, for as long as Timeouts
// allow. doubt says that an attempt before the last may have been executed
// too. A write whose last attempt failed after any of them may have been
// executed returns store.ErrOutcomeUnknown.
func (e *Engine) try(ctx context.Context, write bool, call func(context.Context) error) (doubt bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	start := time.Now()
	defer func() { e.latency.Observe(time.Since(start).Seconds()) }()
	var v verdict // on the last attempt
	err = retry.Redis.Within(e.config.Timeouts.Retry).Do(ctx, func() error {
		err := call(ctx)
		if err == nil || errors.Is(err, driver.Nil) {
			return nil
		}
		v = judge(ctx, err)
		e.failures.WithLabelValues(v.cause).Inc()
		doubt = doubt || v.doubt
		return err
	}, func(error) bool { return v.again }, nil)
	if err != nil {
		err = e.failed(ctx, write && doubt, v, err)
	}
	return doubt, err
}

// failed composes the error of a call that was given up.
func (e *Engine) failed(ctx context.Context, unknown bool, v verdict, err error) error {
	switch {
	case v.cause == "closed":
		err = errClosed
	case v.full:
		err = fmt.Errorf("%w: %s: %w", rowmill.ErrFull, v.explain, err)
	case v.explain != "":
		err = fmt.Errorf("%w: %s: %w", rowmill.ErrUnavailable, v.explain, err)
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
