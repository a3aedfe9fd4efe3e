package actors

import (
	"maps"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// A duty is a worker's side of what it has agreed with the owner of its job:
// which rows it has, which parts wait to be settled. It knows no actors; crew
// is the other side.
type duty struct {
	reports  int64 // ever
	epoch    int64
	session  string // of the owner
	fresh    bool   // no orders of this epoch yet
	holds    holdings
	received int64
	recalled int64
	back     holdings // given back, not known to be taken
	batch    int64    // number of back
	more     holdings // to be given back after that
	parts    map[string]partReport
}

func newDuty(epoch int64, session string) *duty {
	return &duty{epoch: epoch, session: session, fresh: true, holds: make(holdings), back: make(holdings), more: make(holdings), parts: make(map[string]partReport)}
}

// adopt turns to a new owner: one of a later epoch or, after the store has
// forgotten that the epoch was taken, another one of the same. What it was
// giving back the new owner deals anyway, unless it hears that this worker has
// it.
func (d *duty) adopt(epoch int64, session string) bool {
	if epoch < d.epoch || epoch == d.epoch && session == d.session {
		return false
	}
	d.epoch, d.session, d.fresh, d.received, d.recalled = epoch, session, true, 0, 0
	d.back, d.more = make(holdings), make(holdings)
	return true
}

// write fills in a report.
func (d *duty) write(r *report) {
	d.reports++
	r.Number = d.reports
	r.Epoch, r.Fresh, r.Received, r.Recalled = d.epoch, d.fresh, d.received, d.recalled
	if d.fresh {
		r.Holds = d.holds.list()
	}
	if len(d.back) == 0 && len(d.more) > 0 {
		d.back, d.more = d.more, make(holdings)
		d.batch++
	}
	r.Back, r.Batch = d.back.list(), d.batch
	for _, key := range slices.Sorted(maps.Keys(d.parts)) {
		r.Parts = append(r.Parts, d.parts[key])
	}
}

// obey takes orders and returns what is new in them: spans to run, parts that
// are settled, and how many rows are wanted back. ok is false for orders of
// another owner.
func (d *duty) obey(o *orders) (spans []span, settled []string, back int, ok bool) {
	if o.Epoch != d.epoch {
		return nil, nil, 0, false
	}
	d.fresh = false
	for _, deal := range o.Deals {
		if deal.Number <= d.received {
			continue
		}
		d.received = deal.Number
		for _, s := range deal.Spans {
			d.holds.add(s.Shard, s.rows())
		}
		spans = append(spans, deal.Spans...)
	}
	for _, key := range o.Settled {
		if p, waits := d.parts[key]; waits {
			d.holds.remove(p.Shard, p.Rows.Bitmap)
			delete(d.parts, key)
			settled = append(settled, key)
		}
	}
	if o.Taken >= d.batch {
		clear(d.back)
	}
	if o.Recall.Number > d.recalled {
		d.recalled = o.Recall.Number
		back = o.Recall.Rows
	}
	return spans, settled, back, true
}

// wrote notes a part that is durable.
func (d *duty) wrote(p partReport) { d.parts[p.Key] = p }

// giveBack lets go of rows.
func (d *duty) giveBack(shard int, rows *roaring.Bitmap) {
	d.holds.remove(shard, rows)
	d.more.add(shard, rows)
}

// free reports whether the worker has nothing any more, and the owner knows.
func (d *duty) free() bool {
	return len(d.holds) == 0 && len(d.parts) == 0 && len(d.back) == 0 && len(d.more) == 0
}
