package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// This is how a job gets from the claim to an input of which rows can run.

// onBegun takes in shards of an input that is still being read.
func (j *job) onBegun(c actor.Context, b begun) {
	if j.crew.owner != nil {
		j.crew.owner.Append(b.Shards, b.Copies)
		j.crew.serve()
		return
	}
	j.in.add(b)
	j.begin(c)
}

// begin has the first rows run while others are still being read, once an engine
// serves the model.
func (j *job) begin(c actor.Context) {
	b := j.in.begun
	if j.phase != jobStarts || b == nil || j.in.whole || j.draining || j.own.updating || !j.crew.served() {
		return
	}
	if err := j.prepare(j.in.known(), nil, nil, b.counter); err != nil {
		j.broke(c, err)
		return
	}
	j.crew.owner.Append(b.Shards, b.Copies)
	j.await(c)
}

// prepare makes what rows need that are to run.
func (j *job) prepare(known shard.Manifest, shards []shard.Info, parts []store.Part, counter *prompt.Counter) (err error) {
	if j.job, err = newJobContext(j.tasks.ctx, j.cfg, &j.own.rec, j.own.fence, known, counter); err != nil {
		return err
	}
	if j.ledger, err = assign.NewLedger(shards, parts); err == nil {
		j.crew.owner, err = assign.NewOwner(shards, parts)
	}
	return err
}

func (j *job) onInputRead(c actor.Context, m inputRead) {
	j.timers.cancel(readingTimer)
	if m.err != nil {
		j.broke(c, m.err)
		return
	}
	j.in.input, j.in.whole, j.in.copies = m.input, true, m.copies
	if m.rec.Version >= j.own.rec.Version { // else it said what it waits for
		j.own.rec = m.rec
	}
	if j.crew.owner != nil {
		j.in.shards = len(m.input.Shards)
		j.onWhole(c, m)
		return
	}
	if spec := &j.own.rec.Spec; spec.Estimate {
		if !j.in.reads().Samples(spec, m.input.Size) {
			j.tasks.tell(c, "end the job", j.in.estimate(spec))
			return
		}
		m.input = m.input.FirstRows(m.input.Size.SampleRows)
	}
	j.in.shards = len(m.input.Shards)
	if err := j.prepare(m.input, m.input.Shards, m.parts, m.counter); err != nil {
		j.broke(c, err)
		return
	}
	j.crew.group(m.groups, m.copies)
	j.await(c)
}

// onWhole goes on with a job of which rows run, now that all of its input is read.
func (j *job) onWhole(c actor.Context, m inputRead) {
	ledger, err := assign.NewLedger(m.input.Shards, nil)
	switch begun := j.crew.owner.Shards(); {
	case err != nil:
		j.broke(c, err)
		return
	case len(m.parts) > 0: // another owner knew more
		j.broke(c, fmt.Errorf("%w: %d parts are recorded of an input that was being read", errForgotten, len(m.parts)))
		return
	case begun > len(m.input.Shards):
		j.broke(c, fmt.Errorf("%d shards were told of %d", begun, len(m.input.Shards)))
		return
	default:
		j.crew.owner.Append(m.input.Shards[begun:], nil)
	}
	j.crew.group(m.groups, m.copies)
	job := *j.job
	job.manifest = m.input
	j.job, j.ledger = &job, ledger
	if j.phase == jobWaits {
		j.proceed(c)
		return
	}
	j.crew.serve()
	j.count(c)
}

// count records how many rows there are, where some ran before that was known, and
// then has parts recorded: nothing of an input is done before it is known to be
// one.
func (j *job) count(c actor.Context) {
	switch {
	case !j.in.whole || j.own.updating || j.results != nil || j.phase != jobRuns:
	case j.own.rec.Shards == 0:
		j.update(c, j.in.counted())
	default:
		j.startResults(c)
	}
}
