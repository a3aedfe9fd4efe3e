package actors

import (
	"fmt"
	"slices"
	"strings"
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
	if j.updating || j.phase >= jobEnds || message == j.rec.Job.Message {
		return
	}
	now, mark := j.cfg.Clock(), j.mark(waits)
	j.update(c, func(r *store.Record) {
		advance(&r.Job, []rowmill.Status{rowmill.StatusStarting}, now)
		r.Say(message, waits, now)
		mark(r)
	})
}

// message says to a client what the job does, or what it waits for.
func (j *job) message() (text string, waits bool) {
	outage, away := j.storage.Objects()
	switch {
	case away:
		return outage.Message(), true
	case j.phase == jobStarts && j.reading.waits():
		return "Waiting for a turn to read the input: as many others are read as may be at a time (inputs.readers).", true
	case j.phase == jobStarts:
		return j.downloads.Message(j.rec.Job.ID), false
	case !j.served() && j.phase == jobWaits:
		return fmt.Sprintf("Waiting for an engine that serves %s.%s", j.rec.Spec.Model.ID, j.trouble()), true
	case !j.served():
		return fmt.Sprintf("Waiting for an engine that serves %s; finished rows are kept.%s", j.rec.Spec.Model.ID, j.trouble()), true
	case j.phase == jobRuns && j.owner.Assigning && len(j.owner.Workers()) == 0 && len(j.invites.full) > 0:
		return fmt.Sprintf("Waiting for a place on a node that serves %s: as many other jobs run there as may (jobs.max_active).", j.rec.Spec.Model.ID), true
	case j.owner != nil && j.owner.Away() > 0 && j.owner.Away() == len(j.owner.Workers()):
		return fmt.Sprintf("Waiting for object storage, which no node that serves %s can use. The job goes on by itself.", j.rec.Spec.Model.ID), true
	}
	other := j.waits.of(j.waitsFor(), time.Now())
	if other == "" && j.phase == jobRuns && !j.whole {
		return "Processing the first rows while the input is read.", false
	}
	return kept[other], other == assign.WaitsForServer || other == waitsForMerge
}

// waitsFor is what other jobs keep this one waiting for now.
func (j *job) waitsFor() string {
	switch {
	case j.phase != jobRuns || !j.owner.Assigning:
	case !j.owner.Done():
		return j.owner.Waits()
	case j.merging.waits():
		return waitsForMerge
	}
	return ""
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

// trouble says why an engine that has the job's model does not run it, or which models
// the engines have.
func (j *job) trouble() string {
	var served []string
	for _, e := range j.engines {
		if why := e.trouble(&j.rec.Spec); why != "" {
			return " " + why
		}
		if e.up {
			for _, m := range e.info.Models {
				served = append(served, m.Name)
			}
		}
	}
	slices.Sort(served)
	switch served = slices.Compact(served); {
	case len(served) == 0:
		return ""
	case len(served) > namedModels:
		return fmt.Sprintf(" Served now: %s and %d more.", strings.Join(served[:namedModels], ", "), len(served)-namedModels)
	}
	return fmt.Sprintf(" Served now: %s.", strings.Join(served, ", "))
}

// namedModels is how many models a message has room for.
const namedModels = 5
