package e2e

import (
	"context"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/internal/must"
)

// A follower follows a job by events, over several processes of a node.
type follower struct {
	*testing.T
	job  string
	last string  // id of the last event
	rows []int64 // rows_done of the events
}

// follow reads events until until returns true for the job. It returns the job and the
// names of all events.
func (f *follower) follow(n *node, until func(client.Job) bool) (client.Job, []string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	api := must.Get(client.New(client.Config{Server: n.base, Key: apiKey}))(f)
	defer api.Close()
	var names []string
	for e, err := range api.Events(ctx, client.Subscription{Topics: []string{"job:" + f.job}, After: f.last}) {
		must.Succeed(f, err)
		names, f.last = append(names, e.Name), e.ID
		if e.Name != client.EventJob {
			continue
		}
		if f.rows = append(f.rows, e.Job.RowsDone); until(e.Job) {
			return e.Job, names
		}
	}
	f.Fatalf("the job was not heard of to be so: %v, rows %v", context.Cause(ctx), f.rows)
	return client.Job{}, nil
}

// TestEvents_FollowAJob follows a job from start to end by events. The node dies in
// between. The next process does not know which events the client has, and says so.
func TestEvents_FollowAJob(t *testing.T) {
	t.Parallel()
	const rows = 6000
	n := on(t, batchSettings, startSimulated(t, "--ttft", "1ms", "--per-token", "4ms")).start(t)
	inputs := rowTexts(rows)
	f := &follower{T: t, job: n.submit(t, submission{
		Inputs: inputs, Model: "llama-3.1-8b", Priority: 1, Sampling: map[string]any{"max_tokens": 50, "ignore_eos": true},
	})}
	f.follow(n, func(j client.Job) bool { return j.RowsDone > 500 })
	before := f.last
	if f.rows[0] != 0 {
		t.Errorf("the first event tells of %d rows", f.rows[0])
	}
	n.kill()
	n.start(t)
	over, names := f.follow(n, func(j client.Job) bool { return j.Status.IsTerminal() })
	if names[0] != client.EventResync || f.last == before {
		t.Errorf("the next process tells %v", names)
	}
	if over.Status != rowmill.StatusSucceeded || over.RowsDone != rows {
		t.Fatalf("the job ended as %s with %d rows", over.Status, over.RowsDone)
	}
	for i := 1; i < len(f.rows); i++ {
		if f.rows[i] < f.rows[i-1] {
			t.Errorf("rows that were told to be done are so no longer: %v", f.rows)
		}
	}
	if len(f.rows) < 4 {
		t.Errorf("all that was told of the rows: %v", f.rows)
	}
	if outputs, _ := n.results(t, f.job); len(outputs) != rows {
		t.Errorf("%d outputs of %d rows", len(outputs), rows)
	}
}
