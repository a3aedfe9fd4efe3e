package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/tokenize/prompt"
)

// This file has the methods of a job from its claim until its rows can run.

// onNewShards handles new shards of an input that is still being read.
func (j *job) onNewShards(c actor.Context, b shardsArrived) {
	if j.crew.owner != nil {
		j.crew.owner.Append(b.Shards, b.Copies)
		j.crew.assignRows()
		return
	}
	j.in.bufferShards(b)
	j.startEarlyRows(c)
}

// startEarlyRows starts the first rows while the input is still being read. It does nothing
// while no engine serves the model.
func (j *job) startEarlyRows(c actor.Context) {
	b := j.in.begun
	if j.phase != jobStarts || b == nil || j.in.whole || j.draining || j.own.updating || !j.crew.hasEngine() {
		return
	}
	if err := j.prepareRows(j.in.knownManifest(), nil, nil, b.counter); err != nil {
		j.onError(c, err)
		return
	}
	j.crew.owner.Append(b.Shards, b.Copies)
	j.waitForEngine(c)
}

// prepareRows creates the context of the job, the ledger of its parts, and the assign.Owner
// that assigns its rows.
func (j *job) prepareRows(known shard.Manifest, shards []shard.ManifestEntry, parts []store.Part, counter *prompt.Counter) (err error) {
	if j.job, err = newJobContext(j.tasks.ctx, j.cfg, &j.own.rec, j.own.fence, known, counter); err != nil {
		return err
	}
	if j.ledger, err = assign.NewPartLedger(shards, parts); err == nil {
		j.crew.owner, err = assign.NewOwner(shards, parts)
	}
	if err == nil {
		j.crew.owner.Wary = len(j.own.rec.Claims) > 1 && !j.own.harmless
	}
	return err
}

func (j *job) onInputRead(c actor.Context, m inputRead) {
	j.timers.cancel(readingTimer)
	if m.err != nil {
		j.onError(c, m.err)
		return
	}
	j.in.input, j.in.whole, j.in.copies = m.input, true, m.copies
	if m.rec.Version >= j.own.rec.Version { // otherwise the actor's copy of the record is newer
		j.own.rec = m.rec
	}
	if j.crew.owner != nil {
		j.in.shards = len(m.input.Shards)
		j.onWholeInput(c, m)
		return
	}
	j.in.shards = len(m.input.Shards)
	if err := j.prepareRows(m.input, m.input.Shards, m.parts, m.counter); err != nil {
		j.onError(c, err)
		return
	}
	j.crew.setGroupsAndCopies(m.groups, m.copies)
	j.waitForEngine(c)
}

// onWholeInput continues a job whose first rows were started before the whole input was
// read.
func (j *job) onWholeInput(c actor.Context, m inputRead) {
	ledger, err := assign.NewPartLedger(m.input.Shards, nil)
	switch begun := j.crew.owner.CountShards(); {
	case err != nil:
		j.onError(c, err)
		return
	case len(m.parts) > 0: // another owner must have recorded these parts
		j.onError(c, fmt.Errorf("%w: it has %d parts, but the input was still being read", errForgotten, len(m.parts)))
		return
	case begun > len(m.input.Shards):
		j.onError(c, fmt.Errorf("the input has %d shards, but %d were reported while it was read", len(m.input.Shards), begun))
		return
	default:
		j.crew.owner.Append(m.input.Shards[begun:], nil)
	}
	j.crew.setGroupsAndCopies(m.groups, m.copies)
	job := *j.job
	job.manifest = m.input
	j.job, j.ledger = &job, ledger
	if j.phase == jobWaits {
		j.tryToStart(c)
		return
	}
	j.crew.assignRows()
	j.tryStartCommitter(c)
}

// tryStartCommitter starts the committer once the whole input is read. If rows ran before that, it
// first writes the number of rows to the record. Before the whole input is known to be
// valid, no part is recorded.
func (j *job) tryStartCommitter(c actor.Context) {
	switch {
	case !j.in.whole || j.own.updating || j.results != nil || j.phase != jobRuns:
	case j.own.rec.Shards == 0:
		j.updateRecord(c, j.in.rowCountUpdate())
	default:
		j.startResults(c)
	}
}
