package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/store"
)

// This file makes the message in a job's record, which tells the client what the job
// does, or why it waits.

// updateMessage updates the message in the record if it has changed, and the job's demand.
func (j *job) updateMessage(c actor.Context) {
	j.reportDemand(c)
	message, waits := j.message()
	same := message == j.own.rec.Job.Message && (!waits || !j.own.rec.HasOwnersClaim())
	if j.own.updating || j.phase >= jobEnds || same {
		return
	}
	now, mark := j.cfg.Clock(), j.own.crashRiskUpdate(waits)
	j.updateRecord(c, func(r *store.Record) {
		advanceStatus(&r.Job, []rowmill.Status{rowmill.StatusStarting}, now)
		r.SetMessage(message, waits, now)
		mark(r)
	})
}

// message returns the message for the client. waits is true if the job waits; text then
// has the reason.
func (j *job) message() (text string, waits bool) {
	outage, away := j.storage.ObjectsOutage()
	model, owner := j.own.rec.Spec.Model.ID, j.crew.owner
	rest := ""
	if !j.crew.hasEngine() {
		rest = model
	}
	lasting := j.rests.update(rest, time.Now()) != ""
	switch {
	case away:
		return outage.Message(), true
	case j.phase == jobStarts && j.in.reading.isWaiting():
		return "Waiting for a turn to read the input: the node reads as many other inputs as it may (inputs.readers).", true
	case j.phase == jobStarts:
		return j.downloads.Message(j.own.fence.JobID), false
	case !j.crew.hasEngine() && j.phase == jobWaits:
		return fmt.Sprintf("Waiting for an engine that serves %s.%s", model, j.crew.noEngineReason()), true
	case !j.crew.hasEngine():
		// After a short rest, such as a rate limit, rows run before this owner hears of it, and may
		// crash a node.
		return fmt.Sprintf("Waiting for an engine that serves %s; finished rows are kept.%s", model, j.crew.noEngineReason()), lasting
	case j.phase == jobRuns && owner.Assigning && len(owner.Workers()) == 0 && len(j.crew.invites.full) > 0:
		return fmt.Sprintf("Waiting for a place on a node that serves %s: other jobs have all places there (jobs.max_active).", model), true
	case owner != nil && owner.CountCutOffWorkers() > 0 && owner.CountCutOffWorkers() == len(owner.Workers()) && owner.WorkerAt("") == nil: // with a worker on this node, object storage would be usable: this node can use it
		return fmt.Sprintf("Waiting for object storage, which no node that serves %s can use. The job goes on by itself.", model), true
	}
	var other string // why this job waits for other jobs; empty if it does not
	switch {
	case j.phase != jobRuns || !owner.Assigning:
	case !owner.IsFullyCommitted():
		other = owner.WaitReason()
	case j.merging.isWaiting():
		other = waitsForMerge
	}
	other = j.waits.update(other, time.Now())
	if other == "" && j.phase == jobRuns && !j.in.whole {
		return "Processing the first rows while the input is read.", false
	}
	return waitMessages[other], other == assign.WaitsForServer || other == waitsForMerge
}

const waitsForMerge = "merge"

// waitMessages has the client's message for each reason why a job waits for other jobs;
// the empty reason means no wait.
var waitMessages = map[string]string{
	"":                    "Processing rows.",
	assign.WaitsForServer: "Waiting for a turn at an inference server: it runs rows of other jobs, or its limit by the minute is reached.",
	assign.WaitsForMemory: "Rows go out one at a time: rows of other jobs fill the memory that a node has for rows (jobs.memory_budget).",
	assign.WaitsForWrite:  "Waiting for a turn to write finished rows: parts of other jobs are being written.",
	waitsForMerge:         "All rows are done. Waiting for a turn to merge their parts: parts of other jobs are being merged.",
}
