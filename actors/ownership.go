package actors

import (
	"context"
	"slices"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// jobCancelled tells a job actor that a client has cancelled the job. The actor sends
// jobCancelled to itself after it has read the job's record.
type jobCancelled struct{}

// jobRescheduled tells a job actor that a client has paused the job or changed its priority.
type jobRescheduled struct{}

// A jobOwnership holds the record of a job and this node's right to change it. Its
// methods with a context may run outside of the actor.
type jobOwnership struct {
	*deps
	rec      store.Record
	claimed  int64            // version of the record after the claim
	priority rowmill.Priority // of the job at the claim
	fence    store.Fence
	updating bool // a change of the record in the store is in progress

	claim           store.Claim // this owner's entry in the record, until the job is known to be harmless
	harmless        bool        // the node knows that the job is harmless
	hasRecordedRows bool        // this owner has recorded rows
}

func newOwnership(p *deps, rec store.Record, fence store.Fence) *jobOwnership {
	o := &jobOwnership{deps: p, rec: rec, claimed: rec.Version, priority: rec.Job.Priority, fence: fence}
	if n := len(rec.Claims); n > 0 {
		o.claim = rec.Claims[n-1]
	}
	return o
}

// isFirstOwner reports whether this node is the first owner of the job.
func (o *jobOwnership) isFirstOwner() bool { return isFirstClaim(o.claimed) }

// hasLostAllRows reports whether object storage has lost at least as many done rows as the job
// has rows. The job then fails, because the storage would probably lose the rows of
// another run too.
func (o *jobOwnership) hasLostAllRows() bool {
	return o.rec.Job.NumRows != nil && o.rec.Lost.Rows >= *o.rec.Job.NumRows
}

// updateRecord changes the record in the store and returns the new record.
func (o *jobOwnership) updateRecord(ctx context.Context, change func(*store.Record)) (store.Record, error) {
	return runWithResult(o.localStorageRetrier(ctx), func() (store.Record, error) {
		return o.cfg.Store.Update(ctx, o.fence, func(r *store.Record) error {
			change(r)
			return nil
		})
	})
}

// checkRecord reads the record from the store. It returns the message for the job actor
// if a client has cancelled or rescheduled the job, or another node owns the job; otherwise nil.
func (o *jobOwnership) checkRecord(ctx context.Context) any {
	rec, err := o.cfg.Store.Get(ctx, o.fence.JobID)
	switch {
	case err == nil && rec.Job.Status == rowmill.StatusCancelled: // other final statuses are written by this node itself
		return jobCancelled{}
	case err == nil && rec.Epoch != o.fence.Epoch:
		return jobError{rowmill.ErrLeaseLost}
	case err == nil && (rec.Job.Paused || rec.Job.Priority != o.priority):
		return jobRescheduled{}
	}
	return nil
}

// cancelledRecord returns this node's copy of the record with the status cancelled,
// which the copy does not have yet.
func (o *jobOwnership) cancelledRecord() store.Record {
	rec := o.rec
	_ = rec.Job.Become(rowmill.StatusCancelled, o.cfg.Clock())
	return rec
}

// crashRiskUpdate returns a function that writes to the record whether the job may crash
// this process. A job that waits cannot crash the process.
func (o *jobOwnership) crashRiskUpdate(waits bool) func(*store.Record) {
	by, advanced := o.claim, o.hasRecordedRows
	by.Alone = by.Alone && !o.harmless
	return func(r *store.Record) {
		switch {
		case waits:
			r.RemoveOwnersClaim()
		case !r.HasOwnersClaim() && by.Epoch > 0 && !advanced: // this owner's entry was removed while the job waited
			r.Claims = append(slices.Clip(r.Claims), by)
		}
	}
}

// markOutlived notes that the job has run for poison.Time without progress and has not
// crashed the process. It returns a function that writes this to the record; nil if the
// record need not change.
func (o *jobOwnership) markOutlived() func(*store.Record) {
	if !o.claim.Alone {
		return nil
	}
	o.claim.Alone = false
	return func(r *store.Record) {
		if r.HasOwnersClaim() {
			r.Claims = slices.Clone(r.Claims)
			r.Claims[len(r.Claims)-1].Alone = false
		}
	}
}
