package actors

import (
	"context"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// cancelJob tells a job actor that a client has cancelled the job. The actor sends
// cancelJob to itself after it has read the record.
type cancelJob struct{}

// An ownership holds the record of a job and this node's right to change it. Its
// methods with a context may run outside of the actor.
type ownership struct {
	*deps
	rec      store.Record
	claimed  int64 // version of the record after the claim
	fence    store.Fence
	updating bool // a change of the record is in progress

	claim    store.Claim // this owner's entry in the record, until the job is known to be harmless
	harmless bool        // the node knows that the job is harmless
	advanced bool        // rows were recorded by this owner
}

func newOwnership(p *deps, rec store.Record, fence store.Fence) *ownership {
	o := &ownership{deps: p, rec: rec, claimed: rec.Version, fence: fence}
	if n := len(rec.Claims); n > 0 {
		o.claim = rec.Claims[n-1]
	}
	return o
}

// firstOwner reports whether the job never had an owner before.
func (o *ownership) firstOwner() bool { return firstClaim(o.claimed) }

// lostAll reports whether object storage has lost at least as many done rows as the job
// has rows. The job then fails, because the storage would probably lose the rows of
// another run too.
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

// checkRecord reads in the store whether a client has cancelled the job, or another
// node owns it. It returns the message for the job, or nil.
func (o *ownership) checkRecord(ctx context.Context) any {
	rec, err := o.cfg.Store.Get(ctx, o.fence.JobID)
	switch {
	case err == nil && rec.Job.Status == rowmill.StatusCancelled: // this node itself writes the other final statuses
		return cancelJob{}
	case err == nil && rec.Epoch != o.fence.Epoch:
		return jobBroke{rowmill.ErrLeaseLost}
	}
	return nil
}

// cancelledRecord returns the record with status cancelled, after a client has cancelled
// the job: this node's copy of the record does not show that yet.
func (o *ownership) cancelledRecord() store.Record {
	rec := o.rec
	_ = rec.Job.Become(rowmill.StatusCancelled, o.cfg.Clock())
	return rec
}

// riskChange returns a function that writes to the record whether the job may crash this
// process. A job that waits cannot crash it.
func (o *ownership) riskChange(waits bool) func(*store.Record) {
	by, advanced := o.claim, o.advanced
	by.Alone = by.Alone && !o.harmless
	return func(r *store.Record) {
		switch {
		case waits:
			r.Acquit()
		case !r.Watched() && by.Epoch > 0 && !advanced: // the entry was removed while the job waited
			r.Claims = append(slices.Clip(r.Claims), by)
		}
	}
}

// outlived notes that the job has run for a while without progress and has not crashed
// the process. It returns a function that writes this to the record; nil if the record
// need not change.
func (o *ownership) outlived() func(*store.Record) {
	if !o.claim.Alone {
		return nil
	}
	o.claim.Alone = false
	return func(r *store.Record) {
		if r.Watched() {
			r.Claims = slices.Clone(r.Claims)
			r.Claims[len(r.Claims)-1].Alone = false
		}
	}
}
