package commit

import (
	"math"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/store"
)

// A PartProgress tracks which parts of a job are recorded and decides the next steps. The
// caller carries out the steps that Next returns, and reports their results.
type PartProgress struct {
	ledger   *assign.PartLedger
	survives int64 // number of failed rows that the job tolerates

	proposed   []assign.PartProposal // parts that wait to be recorded
	recording  bool                  // a batch is being recorded
	recorded   bool                  // this owner has recorded a batch
	resting    bool                  // proposed parts wait until ReleaseBatch is called, unless they complete the job
	touched    []int                 // shards that may have become mergeable
	merging    map[int]bool          // numbers of the shards whose parts are being merged
	pieces     joinPlan
	helped     bool // nodes other than the owner's node can join parts
	finalising bool // the result is being made
	draining   bool // Drain was called: another owner will continue
	failed     bool // too many rows have failed: no more steps follow
}

// A NextSteps lists the steps that the caller must start now. Next returns each step once.
type NextSteps struct {
	Failed  int64        // number of failed rows if the job tolerates fewer; then all other fields except MayFail are zero
	MayFail int64        // number of failed rows that the job tolerates; only with Failed
	Record  *PartBatch   // a batch to record; the caller then calls MarkRecorded
	Merge   []int        // shards whose parts to merge; the caller then calls Merged for each shard
	Join    []ShardRange // pieces to join; the caller then calls MarkJoined for each piece
	Final   bool         // all rows are done: the caller must make the result
	Drained bool         // Drain was called, and no batch, merge or result is in progress
}

// A PartBatch is a list of parts that are recorded in one write.
type PartBatch struct{ Proposals []assign.PartProposal }

// Parts returns the record of each part in the batch.
func (b *PartBatch) Parts() []store.Part {
	parts := make([]store.Part, len(b.Proposals))
	for i, p := range b.Proposals {
		parts[i] = p.Record
	}
	return parts
}

// SurvivesAll is the value of survives for a job that tolerates any number of failed
// rows, even if all rows fail.
const SurvivesAll = math.MaxInt64

// NewPartProgress returns the progress of a job that tolerates up to survives failed rows.
// The ledger may have parts that an earlier owner recorded. So the first Next may
// already return shards to merge, or Final.
func NewPartProgress(ledger *assign.PartLedger, maxFailedRows int64, sizes JoinSizes) *PartProgress {
	p := &PartProgress{
		ledger: ledger, survives: maxFailedRows, merging: make(map[int]bool),
		pieces: newJoinPlan(sizes, ledger.CountShards(), ledger.Rows),
	}
	for n := range ledger.CountShards() {
		p.touched = append(p.touched, n)
	}
	return p
}

// Propose adds a part that should be recorded. No other part may have its rows.
func (p *PartProgress) Propose(part assign.PartProposal) { p.proposed = append(p.proposed, part) }

// MarkRecorded reports that the store has recorded a batch.
func (p *PartProgress) MarkRecorded(b *PartBatch) {
	p.recording, p.recorded = false, true
	for _, part := range b.Proposals {
		p.ledger.Add(part.Record)
		p.touched = append(p.touched, part.Record.Shard)
	}
}

// MarkMerged reports that the store has recorded the complete part of a shard. It returns
// the parts that the complete part replaces.
func (p *PartProgress) MarkMerged(complete store.Part) (replaced []store.Part) {
	replaced = p.ledger.Parts(complete.Shard)
	delete(p.merging, complete.Shard)
	p.ledger.RecordCompletePart(complete)
	p.touched = append(p.touched, complete.Shard)
	return replaced
}

// HoldBatch makes proposed parts wait until ReleaseBatch is called, unless they complete
// the job. Otherwise each part would cause a write of its own.
func (p *PartProgress) HoldBatch() { p.resting = true }

// ReleaseBatch ends the wait that HoldBatch began: the next batch has all proposed parts.
func (p *PartProgress) ReleaseBatch() { p.resting = false }

// completesJob reports whether all rows of the job are in recorded or proposed parts.
func (p *PartProgress) completesJob() bool {
	rows := p.ledger.Totals.Rows
	for _, part := range p.proposed {
		rows += part.Record.Rows
	}
	return rows >= p.ledger.Rows
}

// MarkJoined reports that the parts of a piece are joined into part. The store keeps the
// records of the parts that were joined.
func (p *PartProgress) MarkJoined(at ShardRange, part store.Part) { p.pieces.recordJoined(at, part) }

// EnableFinalJoins reports that nodes other than the owner's node can join parts. Then the last
// shards are joined too at the end of the job, even if they are too few for a usual
// piece.
func (p *PartProgress) EnableFinalJoins() { p.helped = true }

// Drain stops new merges and the making of the result, because another owner will
// continue the job.
func (p *PartProgress) Drain() { p.draining = true }

// HasRecorded reports whether this owner has recorded a part.
func (p *PartProgress) HasRecorded() bool { return p.recorded }

// Next returns the steps that can start now. It assumes that the caller starts them.
func (p *PartProgress) Next() (next NextSteps) {
	if p.failed {
		return next
	}
	if failed := p.ledger.Totals.Failed; failed > p.survives || failed > 0 && failed >= p.ledger.Rows && p.survives != SurvivesAll {
		p.failed = true
		return NextSteps{Failed: failed, MayFail: p.survives}
	}
	if !p.recording && len(p.proposed) > 0 && (!p.resting || p.draining || p.completesJob()) {
		p.recording = true
		next.Record = &PartBatch{p.proposed}
		p.proposed = nil
	}
	if p.draining {
		next.Drained = !p.recording && len(p.merging) == 0 && !p.finalising
		return next
	}
	for _, n := range p.touched {
		switch {
		case p.merging[n]:
		case p.ledger.Mergeable(n):
			p.merging[n] = true
			next.Merge = append(next.Merge, n)
		case p.ledger.IsShardComplete(n):
			next.Join = append(next.Join, p.pieces.addCompletePart(p.ledger.Parts(n)[0])...)
		}
	}
	p.touched = p.touched[:0]
	if p.finalising || !p.ledger.IsComplete() {
		return next
	}
	if p.helped {
		next.Join = append(next.Join, p.pieces.cutRemaining()...)
	}
	p.finalising = p.pieces.begun == 0
	next.Final = p.finalising
	return next
}

// ShardParts returns the parts of a shard.
func (p *PartProgress) ShardParts(n int) []store.Part { return p.ledger.Parts(n) }

// Parts returns the parts of all shards in order. The joined part of a piece replaces
// the parts of the piece's shards.
func (p *PartProgress) Parts() (parts []store.Part) { return p.pieces.collectParts(p.ledger.Parts) }
