package commit

import (
	"math"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/store"
)

// A Progress is how far the parts of a job have come. It decides what is to be
// done about them: who calls its methods does it, one Next after another.
type Progress struct {
	ledger   *assign.Ledger
	survives int64 // failed rows the job may have
	estimate bool  // the rows are a sample: what they took counts, nobody reads them

	proposed   []assign.Proposal
	recording  bool
	recorded   bool         // a batch, by this owner
	resting    bool         // parts gather, unless they are the last
	touched    []int        // shards that may have become mergeable
	merging    map[int]bool // shards
	pieces     pieces
	helped     bool // there are others than the owner to put parts together
	finalising bool
	draining   bool
	over       bool // too many rows have failed
}

// A Next is what is to be done now, each once.
type Next struct {
	Failed  int64   // rows, where those are too many: nothing else matters then
	Record  *Batch  // is answered by Recorded
	Merge   []int   // shards; each is answered by Merged
	Join    []Piece // complete parts to be put together; each is answered by Joined
	Final   bool    // all rows are done: make the result, or the estimate
	Drained bool    // after Drain: everything that was begun has ended
}

// A Batch is parts that are recorded together.
type Batch struct {
	Proposals []assign.Proposal
	Totals    store.Totals // of the job, these included
}

// Parts are the records of a batch.
func (b *Batch) Parts() []store.Part {
	parts := make([]store.Part, len(b.Proposals))
	for i, p := range b.Proposals {
		parts[i] = p.Record
	}
	return parts
}

// SurvivesAll is how many failed rows a job survives that survives even that all of
// them fail.
const SurvivesAll = math.MaxInt64

// NewProgress takes up a job that survives so many failed rows, with the parts
// that its ledger has: a former owner may have left shards to merge, or a job
// whose last row is done.
func NewProgress(ledger *assign.Ledger, survives int64, estimate bool, sizes PieceSizes) *Progress {
	p := &Progress{
		ledger: ledger, survives: survives, estimate: estimate, merging: make(map[int]bool),
		pieces: newPieces(sizes, ledger.Shards(), ledger.Rows),
	}
	for n := range ledger.Shards() {
		p.touched = append(p.touched, n)
	}
	return p
}

// Propose takes in a part that no other repeats.
func (p *Progress) Propose(part assign.Proposal) { p.proposed = append(p.proposed, part) }

// Recorded notes that the store has a batch.
func (p *Progress) Recorded(b *Batch) {
	p.recording, p.recorded = false, true
	for _, part := range b.Proposals {
		p.ledger.Add(part.Record)
		p.touched = append(p.touched, part.Record.Shard)
	}
}

// Merged notes that the store has a complete part in place of those that are
// returned.
func (p *Progress) Merged(complete store.Part) (replaced []store.Part) {
	replaced = p.ledger.Parts(complete.Shard)
	delete(p.merging, complete.Shard)
	p.ledger.Complete(complete)
	p.touched = append(p.touched, complete.Shard)
	return replaced
}

// Rest has parts gather until Rested, but for those that complete the job: so many
// are written that a batch for each would be too many.
func (p *Progress) Rest() { p.resting = true }

// Rested has those recorded that have gathered.
func (p *Progress) Rested() { p.resting = false }

// last reports whether no part is to come after those that are proposed.
func (p *Progress) last() bool {
	rows := p.ledger.Totals.Rows
	for _, part := range p.proposed {
		rows += part.Record.Rows
	}
	return rows >= p.ledger.Rows
}

// Joined notes that a piece is there. What it was made of stays what the store has.
func (p *Progress) Joined(at Piece, part store.Part) { p.pieces.put(at, part) }

// Helped says that others than the owner put parts together: then it pays to have
// them do so with what is left at the end, too.
func (p *Progress) Helped() { p.helped = true }

// Drain keeps merges and the result from being begun: another owner goes on.
func (p *Progress) Drain() { p.draining = true }

// HasRecorded reports whether this owner has recorded any part.
func (p *Progress) HasRecorded() bool { return p.recorded }

// Next returns what is to be done, and takes it for begun.
func (p *Progress) Next() (next Next) {
	if p.over {
		return next
	}
	if failed := p.ledger.Totals.Failed; failed > p.survives || failed > 0 && failed >= p.ledger.Rows && p.survives != SurvivesAll {
		p.over = true
		return Next{Failed: failed}
	}
	if !p.recording && len(p.proposed) > 0 && (!p.resting || p.draining || p.last()) {
		p.recording = true
		next.Record = &Batch{p.proposed, p.ledger.Totals}
		for _, part := range p.proposed {
			next.Record.Totals = next.Record.Totals.Plus(part.Record.Totals)
		}
		p.proposed = nil
	}
	if p.draining {
		next.Drained = !p.recording && len(p.merging) == 0 && !p.finalising
		return next
	}
	for _, n := range p.touched {
		switch {
		case p.estimate || p.merging[n]:
		case p.ledger.Mergeable(n):
			p.merging[n] = true
			next.Merge = append(next.Merge, n)
		case p.ledger.Whole(n):
			next.Join = append(next.Join, p.pieces.complete(p.ledger.Parts(n)[0])...)
		}
	}
	p.touched = p.touched[:0]
	if p.finalising || !p.complete() {
		return next
	}
	if p.helped && !p.estimate {
		next.Join = append(next.Join, p.pieces.rest()...)
	}
	p.finalising = p.pieces.begun == 0
	next.Final = p.finalising
	return next
}

func (p *Progress) complete() bool {
	if p.estimate {
		return p.ledger.Totals.Rows >= p.ledger.Rows
	}
	return p.ledger.Finished()
}

// Shard are the parts of a shard.
func (p *Progress) Shard(n int) []store.Part { return p.ledger.Parts(n) }

// Parts are the parts of all shards, in order, and pieces in the place of those that
// they were made of.
func (p *Progress) Parts() (parts []store.Part) { return p.pieces.of(p.ledger.Parts) }
