package actors

import (
	"context"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// cancelJob tells a job that its record says cancelled: the node does, and the job's own
// look at the record.
type cancelJob struct{}

// An ownership is the record of a job and the right of this node to change it.
// Its methods that take a context may run outside of the actor.
type ownership struct {
	*process
	rec      store.Record
	claimed  int64 // version of the record after the claim
	fence    store.Fence
	updating bool // the record is being changed

	adopter  store.Adopter // in the record, until it is known that the job does no harm
	harmless bool          // the node knows that
	advanced bool          // rows were recorded here
}

func newOwnership(p *process, rec store.Record, fence store.Fence) *ownership {
	o := &ownership{process: p, rec: rec, claimed: rec.Version, fence: fence}
	if n := len(rec.Adopters); n > 0 {
		o.adopter = rec.Adopters[n-1]
	}
	return o
}

// first reports whether nobody has owned the job before.
func (o *ownership) first() bool { return firstClaim(o.claimed) }

// lostAll reports whether object storage has lost as many rows of the job as there are: what
// it loses again and again is not worth another run.
func (o *ownership) lostAll() bool {
	return o.rec.Job.NumRows != nil && o.rec.Lost.Rows >= *o.rec.Job.NumRows
}

// update changes the record.
func (o *ownership) update(ctx context.Context, change func(*store.Record)) (store.Record, error) {
	return result(o.patientHere(ctx), func() (store.Record, error) {
		return o.cfg.Store.Update(ctx, o.fence, func(r *store.Record) error {
			change(r)
			return nil
		})
	})
}

// look looks whether the job was cancelled at another node, or is owned there. It
// returns the message that says so to the job, or nil.
func (o *ownership) look(ctx context.Context) any {
	rec, err := o.cfg.Store.Get(ctx, o.fence.JobID)
	switch {
	case err == nil && rec.Job.Status == rowmill.StatusCancelled: // any other end is our own
		return cancelJob{}
	case err == nil && rec.Epoch != o.fence.Epoch:
		return jobBroke{rowmill.ErrLeaseLost}
	}
	return nil
}

// cancelled is the record of a job that a client has ended, which our copy does not
// say.
func (o *ownership) cancelled() store.Record {
	rec := o.rec
	_ = rec.Job.Become(rowmill.StatusCancelled, o.cfg.Clock())
	return rec
}

// mark says in the record whether the job may be what ends this process. While it
// waits for something else it is not.
func (o *ownership) mark(waits bool) func(*store.Record) {
	by, advanced := o.adopter, o.advanced
	by.Alone = by.Alone && !o.harmless
	return func(r *store.Record) {
		switch {
		case waits:
			r.Adopters = nil
		case len(r.Adopters) == 0 && by.Epoch > 0 && !advanced: // it has waited
			r.Adopters = []store.Adopter{by}
		}
	}
}

// outlived notes that nothing of the job is done for long, and the process lives.
// It returns how the record has to change for that, or nil.
func (o *ownership) outlived() func(*store.Record) {
	if !o.adopter.Alone {
		return nil
	}
	o.adopter.Alone = false
	return func(r *store.Record) {
		if n := len(r.Adopters); n > 0 {
			r.Adopters = append([]store.Adopter(nil), r.Adopters...)
			r.Adopters[n-1].Alone = false
		}
	}
}
