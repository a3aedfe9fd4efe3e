package actors_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/internal/must"
)

// With any number of inputs, only a few are read at the same time. An account with
// no input being read does not wait for the other accounts.
func TestInputsAreReadByTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Second) }) // the dead-letter throttle of the actor library ends by itself
		slow := &sluggish{of: "/shard-", lets: make(chan struct{})}
		b := setup(t, &scripted{answer: echo}, func(c *actors.Config) {
			slow.Bucket, c.Blob, c.Inputs.Readers = c.Blob, slow, 2
		})
		spooled := func(account string) string {
			return b.submit(rowmill.Spec{Account: account, Spooled: b.spool(numbered(10))})
		}
		var jobs []string
		for range 8 {
			jobs = append(jobs, spooled("greedy"))
		}
		time.Sleep(10 * time.Second)
		if n := slow.waiting.Load(); n != 2 {
			t.Errorf("%d inputs are read at a time, want 2", n)
		}
		waits := 0
		for _, id := range jobs {
			rec := must.Get(b.store.Get(t.Context(), id))(t)
			if strings.HasPrefix(rec.Job.Message, "Waiting for a turn to read the input") {
				waits++
			}
		}
		if waits != 6 {
			t.Errorf("%d jobs say that they wait for a turn, want 6", waits)
		}
		jobs = append(jobs, spooled("modest"))
		time.Sleep(time.Second)
		if n := slow.waiting.Load(); n != 3 {
			t.Errorf("%d inputs are read, want 3: also the input of the other account", n)
		}
		close(slow.lets)
		for _, id := range jobs {
			if rec := b.end(id); rec.Job.Status != rowmill.StatusSucceeded {
				t.Errorf("a job is %s: %s", rec.Job.Status, rec.Job.Message)
			}
		}
	})
}
