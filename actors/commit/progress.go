package commit

import (
	"math"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/store"
)

// A Progress tracks the parts of a job and decides the next steps. The caller carries
// them out, one Next after another.
type Progress struct {
	ledger   *assign.Ledger
	survives int64 // number of failed rows that the job tolerates
	estimate bool  // the rows are a sample: only their totals matter, and no result is made

	proposed   []assign.Proposal
	recording  bool
	recorded   bool         // this owner has recorded a batch
	resting    bool         // proposed parts wait until Rested, unless they complete the job
	touched    []int        // shards that may have become mergeable
	merging    map[int]bool // shards
	pieces     pieces
	helped     bool // nodes other than the owner's can join parts
	finalising bool
	draining   bool
	failed     bool // too many rows have failed: there are no more steps
}

// A Next is a list of steps to take now. Each step is returned once.
type Next struct {
	Failed  int64   // number of failed rows, if there are too many: the other fields do not matter then
	Record  *Batch  // the caller answers with Recorded
	Merge   []int   // shards to merge; the caller answers each with Merged
	Join    []Piece // complete parts to join; the caller answers each with Joined
	Final   bool    // all rows are done: make the result or the estimate
	Drained bool    // after Drain: all steps have ended
}

// A Batch is a list of parts that are recorded together.
type Batch struct{ Proposals []assign.Proposal }

// Parts returns the records of the parts.
func (b *Batch) Parts() []store.Part {
	parts := make([]store.Part, len(b.Proposals))
	for i, p := range b.Proposals {
		parts[i] = p.Record
	}
	return parts
}

// SurvivesAll means that the job tolerates any number of failed rows, even if all rows
// fail.
const SurvivesAll = math.MaxInt64

// NewProgress returns the progress of a job that tolerates this many failed rows. The
// ledger may have parts from a former owner. So the first Next may already have shards to
// merge, or the result to make.
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

// Propose adds a part; no other part has its rows.
func (p *Progress) Propose(part assign.Proposal) { p.proposed = append(p.proposed, part) }

// Recorded notes that the store has recorded a batch.
func (p *Progress) Recorded(b *Batch) {
	p.recording, p.recorded = false, true
	for _, part := range b.Proposals {
		p.ledger.Add(part.Record)
		p.touched = append(p.touched, part.Record.Shard)
	}
}

// Merged notes that the store has recorded a complete part, and returns the replaced
// parts.
func (p *Progress) Merged(complete store.Part) (replaced []store.Part) {
	replaced = p.ledger.Parts(complete.Shard)
	delete(p.merging, complete.Shard)
	p.ledger.Complete(complete)
	p.touched = append(p.touched, complete.Shard)
	return replaced
}

// Rest lets proposed parts wait until Rested, unless they complete the job. A batch for
// each part would be too many writes.
func (p *Progress) Rest() { p.resting = true }

// Rested ends the wait that Rest began: the next batch has all proposed parts.
func (p *Progress) Rested() { p.resting = false }

// completesJob reports whether the proposed parts have all rows that are not recorded.
func (p *Progress) completesJob() bool {
	rows := p.ledger.Totals.Rows
	for _, part := range p.proposed {
		rows += part.Record.Rows
	}
	return rows >= p.ledger.Rows
}

// Joined notes that the part of a piece is made. The store keeps the records of the parts
// that were joined.
func (p *Progress) Joined(at Piece, part store.Part) { p.pieces.put(at, part) }

// Helped notes that nodes other than the owner's can join parts. Then the last shards,
// too few for a usual piece, are joined too at the end of the job.
func (p *Progress) Helped() { p.helped = true }

// Drain prevents new merges and the result: another owner continues.
func (p *Progress) Drain() { p.draining = true }

// HasRecorded reports whether this owner has recorded a part.
func (p *Progress) HasRecorded() bool { return p.recorded }

// Next returns the next steps, and treats them as started.
func (p *Progress) Next() (next Next) {
	if p.failed {
		return next
	}
	if failed := p.ledger.Totals.Failed; failed > p.survives || failed > 0 && failed >= p.ledger.Rows && p.survives != SurvivesAll {
		p.failed = true
		return Next{Failed: failed}
	}
	if !p.recording && len(p.proposed) > 0 && (!p.resting || p.draining || p.completesJob()) {
		p.recording = true
		next.Record = &Batch{p.proposed}
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

// Shard returns the parts of a shard.
func (p *Progress) Shard(n int) []store.Part { return p.ledger.Parts(n) }

// Parts returns the parts of all shards in order. A piece replaces the parts of its
// shards.
func (p *Progress) Parts() (parts []store.Part) { return p.pieces.of(p.ledger.Parts) }
