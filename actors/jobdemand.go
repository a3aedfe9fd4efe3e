package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
)

// jobDemand tells the node how much work this job has left. The nodes then decide which
// inference servers run.
type jobDemand struct {
	id     string
	demand nodes.Demand
}

// reportDemand sends a jobDemand if the demand has changed enough.
func (j *job) reportDemand(c actor.Context) {
	d := j.demand(time.Now())
	if d.IsCloseTo(j.reported) {
		return
	}
	j.reported = d
	c.Send(j.node, jobDemand{j.own.fence.JobID, d})
}

// demand returns how much work the job has left. An estimate has no demand: it waits only a
// few seconds for a server, which is less than a server takes to start.
func (j *job) demand(now time.Time) nodes.Demand {
	spec := &j.own.rec.Spec
	d := nodes.Demand{Model: spec.Model.ID, Names: spec.Model.EngineNames}
	if spec.Estimate || j.draining || j.phase >= jobCloses {
		return d
	}
	if j.crew.hasEngine() {
		j.withoutEngine = time.Time{}
	} else if j.withoutEngine.IsZero() {
		j.withoutEngine = now
	}
	d.Urgent, d.Since = j.own.rec.Job.Priority.IsUrgent(), j.withoutEngine.Truncate(time.Second)
	if j.crew.owner == nil { // the rows are not counted yet
		d.Tokens = tokensPerRow(spec, 0, 0)
		return d
	}
	d.Tokens = j.crew.owner.CountOpenRows() * j.tokensPerRow()
	return d
}

// tokensPerRow returns about how many tokens a row of the job has, with its answer: the mean
// of the rows that this owner has committed, or else an estimate.
func (j *job) tokensPerRow() int64 {
	if t := j.committed; t.Rows > 0 {
		return max(1, (t.InputTokens+t.OutputTokens)/t.Rows)
	}
	return tokensPerRow(&j.own.rec.Spec, j.in.input.Tokens, j.in.input.Rows)
}

// Tokens that an uncounted prompt and an answer without a limit are assumed to have. Both
// are wrong until the first rows are committed, and only decide the order of servers.
const (
	usualPrompt = 500
	usualAnswer = 250
)

// tokensPerRow returns about how many tokens a row and its answer have. tokens is the sum over
// the prompts of all rows; 0 if the prompts are not counted.
func tokensPerRow(spec *rowmill.Spec, tokens, rows int64) int64 {
	prompt, answer := int64(usualPrompt), int64(usualAnswer)
	if tokens > 0 && rows > 0 {
		prompt = max(1, tokens/rows)
	}
	switch most := spec.MaxTokens(); {
	case spec.Model.Kind == rowmill.KindEmbedding:
		answer = 0
	case most > 0:
		answer = min(answer, most)
	}
	return prompt + answer
}
