package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/store"
)

// This is what a job's record says of what it does, or waits for.

// say has the record tell what the job does or waits for, where that has changed.
func (j *job) say(c actor.Context) {
	message, waits := j.message()
	if j.own.updating || j.phase >= jobEnds || message == j.own.rec.Job.Message {
		return
	}
	now, mark := j.cfg.Clock(), j.own.mark(waits)
	j.update(c, func(r *store.Record) {
		advance(&r.Job, []rowmill.Status{rowmill.StatusStarting}, now)
		r.Say(message, waits, now)
		mark(r)
	})
}

// message says to a client what the job does, or what it waits for.
func (j *job) message() (text string, waits bool) {
	outage, away := j.storage.Objects()
	model, owner := j.own.rec.Spec.Model.ID, j.crew.owner
	switch {
	case away:
		return outage.Message(), true
	case j.phase == jobStarts && j.in.reading.waits():
		return "Waiting for a turn to read the input: as many others are read as may be at a time (inputs.readers).", true
	case j.phase == jobStarts:
		return j.downloads.Message(j.own.fence.JobID), false
	case !j.crew.served() && j.phase == jobWaits:
		return fmt.Sprintf("Waiting for an engine that serves %s.%s", model, j.crew.trouble()), true
	case !j.crew.served():
		return fmt.Sprintf("Waiting for an engine that serves %s; finished rows are kept.%s", model, j.crew.trouble()), true
	case j.phase == jobRuns && owner.Assigning && len(owner.Workers()) == 0 && len(j.crew.invites.full) > 0:
		return fmt.Sprintf("Waiting for a place on a node that serves %s: as many other jobs run there as may (jobs.max_active).", model), true
	case owner != nil && owner.Away() > 0 && owner.Away() == len(owner.Workers()):
		return fmt.Sprintf("Waiting for object storage, which no node that serves %s can use. The job goes on by itself.", model), true
	}
	var other string // what other jobs keep this one waiting for now
	switch {
	case j.phase != jobRuns || !owner.Assigning:
	case !owner.Done():
		other = owner.Waits()
	case j.merging.waits():
		other = waitsForMerge
	}
	other = j.waits.of(other, time.Now())
	if other == "" && j.phase == jobRuns && !j.in.whole {
		return "Processing the first rows while the input is read.", false
	}
	return kept[other], other == assign.WaitsForServer || other == waitsForMerge
}

const waitsForMerge = "merge"

// kept says of what keeps a job waiting what that means.
var kept = map[string]string{
	"":                    "Processing rows.",
	assign.WaitsForServer: "Waiting for a turn at an inference server: rows of other jobs are there, or its limit by the minute is reached.",
	assign.WaitsForMemory: "Rows go out one at a time: rows of other jobs fill the memory that a node has for them (jobs.memory_budget).",
	assign.WaitsForWrite:  "Waiting for a turn to write finished rows: parts of other jobs are written.",
	waitsForMerge:         "All rows are done. Waiting for a turn to merge their parts: those of other jobs are merged.",
}
