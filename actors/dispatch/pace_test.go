package dispatch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/engine"
)

// Tests of limits per minute. Reports of missing or faulty limits elsewhere:
// vitalops/datatune#49 (rows at once exceed the tokens), agent0ai/agent-zero#711 (a
// request above the limit), meta-llama/llama-models#354 (a burst after a pause).
//
// No minute has more requests or tokens than the operator allows: not after an idle
// time, not on a server that takes many rows at once, and not with unexpected answers.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		pace   engine.RateLimit
		expect int64 // expected tokens of a row
		prompt int64
		answer int64
		most   int // requests in any minute
		least  int // requests in ten minutes
	}{
		{"one request a minute", engine.RateLimit{Requests: 1}, 10, 5, 5, 1, 10},
		{"60 requests", engine.RateLimit{Requests: 60}, 10, 5, 5, 60, 590},
		{"600 requests", engine.RateLimit{Requests: 600}, 10, 5, 5, 600, 5_800},
		{"1,000 tokens", engine.RateLimit{Tokens: 1000}, 10, 5, 5, 100, 950},
		{"1,000 tokens, answers are shorter than expected", engine.RateLimit{Tokens: 1000}, 100, 5, 5, 100, 800},
		{"rows above the limit", engine.RateLimit{Tokens: 1000}, 2000, 1000, 1000, 1, 5},
		{"both", engine.RateLimit{Requests: 60, Tokens: 300}, 10, 5, 5, 30, 285},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sent []time.Time
				b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
					mu.Lock()
					sent = append(sent, time.Now())
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					reply, err := answered("x")
					reply.InputTokens, reply.OutputTokens = test.prompt, test.answer
					return reply, err
				}})
				b.disp.paced(test.pace)
				time.Sleep(10 * time.Minute) // an idle time saves up no allowance
				rows := tasks(10_000, 1)
				for _, task := range rows {
					task.expect = test.expect
				}
				b.queue.Put(rows)
				time.Sleep(10*time.Minute - time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if len(sent) < test.least {
					t.Errorf("%d requests in ten minutes, want at least %d", len(sent), test.least)
				}
				for i := range sent {
					if j := i + test.most; j < len(sent) && sent[j].Sub(sent[i]) < time.Minute {
						t.Fatalf("%d requests in %v, want %d a minute", test.most+1, sent[j].Sub(sent[i]), test.most)
					}
				}
				b.queue.Withdraw()
			})
		})
	}
}

// paced sets the limits of a dispatcher.
func (d *Dispatcher) paced(p engine.RateLimit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pace = newRateLimiter(p)
}

// A refused request is not charged. An answered request is charged with the server's
// count.
func TestPace_UsesTheServersCount(t *testing.T) {
	t.Parallel()
	p := newRateLimiter(engine.RateLimit{Tokens: 6000})
	p.countRequest(50)
	p.correctTokens(50, &requestResult{busy: true})
	if p.tokens.left != 100 {
		t.Errorf("after a refusal %v tokens are left, want 100", p.tokens.left)
	}
	p.countRequest(50)
	p.correctTokens(50, &requestResult{answered: true, prompts: 20, tokens: 400})
	if p.tokens.left != -320 {
		t.Errorf("after an answer of 420 tokens %v are left, want -320", p.tokens.left)
	}
	if wait := p.tokens.wait(time.Now()); wait < 3*time.Second {
		t.Errorf("the debt is waited for %v, want more than 3 s", wait)
	}
}

// If a row is refused while nothing else is in flight, the window does not shrink: three
// such refusals once left the next job a window of 1 row instead of 40.
func TestQueue_ARowRefusedAloneLeavesTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refusing := true
		b := newBench(t, &scripted{answer: func(context.Context, engine.Row) (engine.Reply, error) {
			if refusing {
				return engine.Reply{}, &engine.Error{Class: engine.Busy, Status: 429, Overloaded: true, Message: "later"}
			}
			return answered("ok")
		}})
		b.rest()
		before, _, _ := b.disp.Load()
		for range 3 {
			b.queue.Put(tasks(1, 1))
			time.Sleep(10 * time.Second)
			b.queue.Withdraw()
			b.out.Take(nil)
		}
		if after, _, _ := b.disp.Load(); after != before {
			t.Errorf("the window has %d rows, and had %d", after, before)
		}
		refusing = false
	})
}

// RateLimitMessage names the limit that rows wait for, and the time: not before there are
// rows, and not after the limit allows them.
func TestPace_IsShownWhileRowsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, answers("x"))
		b.disp.paced(engine.RateLimit{Requests: 2, Tokens: 600})
		if said := b.disp.RateLimitMessage(); said != "" {
			t.Errorf("without rows: %q", said)
		}
		began := time.Now()
		b.queue.Put(tasks(2, 1))
		synctest.Wait()
		want := "this node sends at most 2 requests and 600 tokens a minute (max_requests_per_minute, max_tokens_per_minute); the next request goes at " +
			began.Add(30*time.Second).UTC().Format("15:04:05 UTC")
		if said := b.disp.RateLimitMessage(); said != want {
			t.Errorf("while a row waits: %q, want %q", said, want)
		}
		b.wait(2)
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("the second row went after %v, want 30 s", took)
		}
		if said := b.disp.RateLimitMessage(); said != "" {
			t.Errorf("after the last row: %q", said)
		}
	})
}
