package actors_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
	"github.com/rowmill/rowmill/store"
)

// listed returns the actors that a node lists, and fails the test if a node does
// not answer.
func listed(t *testing.T, s *actors.System, node string, f registry.Filter) (all []registry.Actor) {
	t.Helper()
	replies := must.Get(s.Actors(t.Context(), node, f))(t)
	for _, r := range replies {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		all = append(all, r.Answer.Actors...)
	}
	return all
}

// While the bucket is unavailable every mailbox is empty: a task waits, and its
// actor shows the error.
func TestATaskThatWaitsForTheBucketIsListed(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		bucket, change := faulty("/parts/")
		b := setup(t, &scripted{answer: echo}, change)
		bucket.fail(syscall.ENOSPC)
		id := b.submit(rowmill.Spec{Inline: numbered(10)})
		wait.Until(t, func() error {
			workers := listed(t, b.system, "", registry.Filter{Kind: "worker", Job: id, MinAge: short})
			if len(workers) != 1 || workers[0].Task != "write a part" || workers[0].Trouble == nil || !strings.Contains(workers[0].Trouble.Text, "no space left") {
				return fmt.Errorf("listed: %+v", workers)
			}
			return nil
		})
		kinds := map[string]int{}
		for _, a := range listed(t, b.system, "", registry.Filter{}) {
			if kinds[a.Kind]++; a.Restarts != 0 || a.State != registry.Running || a.Since.IsZero() || (a.Job == "") != (a.Kind == "node" || a.Kind == "engine") {
				t.Errorf("%+v", a)
			}
		}
		if fmt.Sprint(kinds) != "map[engine:1 job:1 node:1 results:1 worker:1]" {
			t.Errorf("%v", kinds)
		}
		bucket.fail(nil)
		b.checkEcho(b.end(id), numbered(10))
		wait.For(t, "the actors of the job are gone", func() bool { return len(listed(t, b.system, "", registry.Filter{Job: id})) == 0 })
	})
}

// If rows wait for an engine, the list of actors and its status say why and until
// when. The server asked for the pause, or the operator limits the requests.
func TestAnEngineSaysWhyRowsWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pace engine.RateLimit
		want string
	}{
		"limit by the minute": {engine.RateLimit{Requests: 6}, "rows wait: this node sends at most 6 requests a minute (max_requests_per_minute, max_tokens_per_minute); the next request goes at "},
		"rate limit":          {engine.RateLimit{}, "writer gets no rows now: HTTP 429, rate_limited; next try at "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inVirtualTime(t, func(t *testing.T) {
				var calls atomic.Int32
				answer := func(ctx context.Context, row string, try int) (engine.Reply, error) {
					if test.pace == (engine.RateLimit{}) && calls.Add(1) <= 2 {
						return engine.Reply{}, &engine.Error{Class: engine.Busy, Status: 429, Code: "rate_limited", RetryAfter: 5 * time.Second}
					}
					return echo(ctx, row, try)
				}
				b := setup(t, &scripted{answer: answer}, func(c *actors.Config) {
					c.Servers.Pace = func(string) engine.RateLimit { return test.pace }
				})
				waits := func() (shown, status string) {
					for _, a := range listed(t, b.system, "", registry.Filter{Kind: "engine"}) {
						if a.Trouble != nil {
							shown = a.Trouble.Text
						}
					}
					for _, e := range b.system.Engines() {
						status = strings.Join(e.Waits(), "; ")
					}
					return shown, status
				}
				id := b.submit(rowmill.Spec{Inline: numbered(3)})
				wait.Until(t, func() error {
					if shown, status := waits(); !strings.HasPrefix(shown, test.want) || shown != status {
						return fmt.Errorf("listed: %q, status: %q", shown, status)
					}
					return nil
				})
				b.checkEcho(b.end(id), numbered(3))
				if _, status := waits(); status != "" {
					t.Errorf("after the job: %q", status)
				}
			})
		})
	}
}

// A server that often asks for a pause fills no log: its route has one line per minute.
func TestManyPausesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		answer := func(ctx context.Context, row string, try int) (engine.Reply, error) {
			if try == 1 {
				return engine.Reply{}, &engine.Error{Class: engine.Busy, Status: 429, Code: "rate_limited", RetryAfter: 5 * time.Second}
			}
			return echo(ctx, row, try)
		}
		var log lines
		b := setup(t, &scripted{answer: answer}, func(c *actors.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		began := time.Now()
		b.checkEcho(b.end(b.submit(rowmill.Spec{Inline: numbered(40)})), numbered(40))
		took := time.Since(began)
		logged := strings.Count(log.String(), "the engine gets no rows for a while")
		if took < 2*time.Minute || logged < 2 || logged > 1+int(took/time.Minute) {
			t.Errorf("%d lines in %v", logged, took)
		}
	})
}

// An actor that has panicked is listed with its reason, also after its end.
func TestAPanicIsListed(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b := setup(t, &scripted{answer: echo, panics: true})
		id := b.submit(rowmill.Spec{Inline: numbered(10)})
		b.end(id)
		found := listed(t, b.system, "", registry.Filter{Kind: "worker", Job: id})
		if len(found) == 0 || found[0].State != registry.Panicked || !strings.Contains(found[0].Trouble.Text, "no warnings today") {
			t.Errorf("%+v", found)
		}
	})
}

// Any node lists the actors of all nodes, and shows the nodes that do not answer.
func TestActorsOfAllNodes(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T) {
		b, net := setup(t, nil), newNetwork()
		one := b.join(net, "one", &scripted{answer: slowly(time.Hour)})
		two := b.join(net, "two", &scripted{answer: slowly(time.Hour)})
		b.system = one.system
		id := b.submit(rowmill.Spec{Inline: numbered(1000)})
		wait.For(t, "both nodes work", func() bool {
			return len(listed(t, two.system, "", registry.Filter{Kind: "worker", Job: id})) == 2
		})
		if all := listed(t, one.system, "two", registry.Filter{Kind: "node"}); len(all) != 1 {
			t.Errorf("%+v", all)
		}
		if _, err := one.system.Actors(t.Context(), "three", registry.Filter{}); !errors.Is(err, rowmill.ErrNotFound) {
			t.Error(err)
		}
		two.cut.Store(true)
		replies, err := one.system.Actors(t.Context(), "", registry.Filter{Kind: "node"})
		if err != nil || len(replies) != 2 {
			t.Fatalf("%+v, %v", replies, err)
		}
		for _, r := range replies {
			if (r.Err != nil) != (r.Node.Name == "two") || len(r.Answer.Actors) != map[string]int{"one": 1}[r.Node.Name] {
				t.Errorf("%+v", r)
			}
		}
		two.cut.Store(false)
		_, _ = b.store.Cancel(t.Context(), id, time.Now(), func(*store.Record) {})
		one.system.NotifyCancelled(id)
	})
}
