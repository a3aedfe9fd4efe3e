package cluster

import (
	"fmt"
	"slices"
	"time"
)

// A Glimpse is a job's record as it was in the store at some moment.
type Glimpse struct {
	At           time.Time
	Status       string
	Over         bool // Status is final
	Epoch        int64
	Version      int64
	Session      string
	RowsDone     int64
	FailedRows   int64
	InputTokens  int64
	OutputTokens int64
}

// A Strike is what a fault did to a running job.
type Strike struct {
	Fault string
	At    time.Time
	Done  int64 // rows done then

	// OwnerLost says that the job's owner has died or cannot renew its lease
	// any more: another has to take over.
	OwnerLost bool

	// AllLost says that all processes have died: nobody takes over before they are
	// started again.
	AllLost bool

	// Unwritten is for how long no record can be written from then on: nobody takes
	// over meanwhile.
	Unwritten time.Duration

	// Forgot says that the store lost its last moments: the record goes back.
	Forgot bool

	// Lives says that all processes go on, and can be heard again before the next
	// owner of a job gives one up that is downloading its input.
	Lives bool

	// MayFail is the code with which the job may fail after it; empty: none.
	MayFail string

	// Lost is how many nodes may lose what they have in flight and one flush.
	Lost int

	// Rows is how many rows more may be run again.
	Rows int
}

// Limits are what the promises allow.
type Limits struct {
	// Takeover is the longest time from an owner's loss to the next epoch.
	Takeover time.Duration
	// Flight is how many rows a node has in flight, and answered but not
	// committed, at most: also one that lives and that nobody hears.
	Flight int
}

// reruns is how many rows may be run again after the strikes.
func (l Limits) reruns(strikes []Strike) int {
	bound := 0
	for _, s := range strikes {
		bound += s.Lost*l.Flight + s.Rows
	}
	return bound
}

// Evidence is what is known of one job after its end.
type Evidence struct {
	Inputs    []string
	Want      []Answer // to each of the inputs
	Results   Results
	Record    Record
	Later     Record     // the same, after all that was struck is back
	History   []Glimpse  // oldest first
	Strikes   []Strike   // oldest first
	Sightings []Sighting // of all simulators; other jobs' too
	Left      []string   // what bucket and Redis hold of the job, and should not
	Downloads int        // how often its input was asked for
}

// A Verdict is what the judge finds.
type Verdict struct {
	Wrongs   []string      // promises that were broken; none: all held
	Reruns   int           // rows answered more than once, counted as often
	Bound    int           // how many may
	Aborted  int           // requests given up before their answer
	Takeover time.Duration // longest; 0 without any
}

func (v *Verdict) wrong(format string, args ...any) {
	v.Wrongs = append(v.Wrongs, fmt.Sprintf(format, args...))
}

// Judge settles the account of one job.
func Judge(e Evidence, l Limits) Verdict {
	v := Verdict{Bound: l.reruns(e.Strikes)}
	v.judgeRecord(e)
	for _, left := range e.Left {
		v.wrong("left of the job: %s", left)
	}
	if e.Downloads > 1 {
		v.wrong("the input was asked for %d times", e.Downloads)
	}
	if e.Record.Status == "succeeded" {
		v.judgeResults(e)
		v.judgeWork(e)
	}
	v.judgeHistory(e.History, e.Strikes)
	v.judgeTakeovers(e, l)
	return v
}

// judgeRecord wants the job done by itself, every row once in its figures, and
// no change after that.
func (v *Verdict) judgeRecord(e Evidence) {
	var input, output int64
	for _, a := range e.Want {
		input, output = input+a.Input, output+a.Output
	}
	r, rows := e.Record, int64(len(e.Inputs))
	switch {
	case r.Status == "failed" && r.Failure != nil && mayFail(e.Strikes, r.Failure.Code):
	case r.Status != "succeeded" && r.Failure != nil:
		v.wrong("the job is %s: %s: %s", r.Status, r.Failure.Code, r.Failure.Message)
	case r.Status != "succeeded":
		v.wrong("the job is %s", r.Status)
	case r.NumRows == nil || *r.NumRows != rows || r.RowsDone != rows || r.FailedRows != 0:
		v.wrong("the job has %d rows done and %d failed, want %d and 0", r.RowsDone, r.FailedRows, rows)
	case r.InputTokens != input || r.OutputTokens != output:
		v.wrong("the job counts %d and %d tokens, its rows have %d and %d", r.InputTokens, r.OutputTokens, input, output)
	}
	if was, is := lasting(r), lasting(e.Later); was != is {
		v.wrong("the job was over and changed: %s, then %s", was, is)
	}
}

func mayFail(strikes []Strike, code string) bool {
	return slices.ContainsFunc(strikes, func(s Strike) bool { return s.MayFail == code })
}

// lasting is what must never change of a job that is over.
func lasting(r Record) string {
	text := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	cost := -1.0
	if r.Cost != nil {
		cost = *r.Cost
	}
	return fmt.Sprintf("%s at %s, %d rows, %d failed, %d+%d tokens, %v USD",
		r.Status, text(r.Completed), r.RowsDone, r.FailedRows, r.InputTokens, r.OutputTokens, cost)
}

// judgeResults wants exactly one output for each row, in the order of the
// input, and each the answer to its row.
func (v *Verdict) judgeResults(e Evidence) {
	if len(e.Results.Outputs) != len(e.Inputs) || len(e.Results.Inputs) != len(e.Inputs) {
		v.wrong("%d rows have %d outputs and %d inputs in the results", len(e.Inputs), len(e.Results.Outputs), len(e.Results.Inputs))
		return
	}
	const shown = 3
	bad := 0
	for i, input := range e.Inputs {
		output := e.Results.Outputs[i]
		switch {
		case e.Results.Inputs[i] != input:
			bad++
			if bad <= shown {
				v.wrong("row %d of the results has the input %.80q, want %.80q", i, e.Results.Inputs[i], input)
			}
		case output == nil:
			bad++
			if bad <= shown {
				v.wrong("row %d has no output", i)
			}
		case *output != e.Want[i].Text:
			bad++
			if bad <= shown {
				v.wrong("row %d has the output %.80q, want %.80q", i, *output, e.Want[i].Text)
			}
		}
	}
	if bad > shown {
		v.wrong("%d rows are wrong in all", bad)
	}
}

// judgeWork counts what the witnesses saw: every row answered, and few twice.
func (v *Verdict) judgeWork(e Evidence) {
	answered := make(map[string]int, len(e.Inputs))
	for _, input := range e.Inputs {
		answered[promptHash(input)] = 0
	}
	for _, s := range e.Sightings {
		times, ours := answered[s.Prompt]
		switch {
		case !ours:
		case s.good():
			answered[s.Prompt] = times + 1
		case s.Cancelled:
			v.Aborted++
		}
	}
	unseen := 0
	for _, times := range answered {
		if times == 0 {
			unseen++
		}
		v.Reruns += max(0, times-1)
	}
	if unseen > 0 {
		v.wrong("%d rows were never answered by any simulator", unseen)
	}
	if v.Reruns > v.Bound {
		v.wrong("%d rows were run again, %d may", v.Reruns, v.Bound)
	}
}

// judgeHistory wants epochs, versions and progress never to go back, one
// session in one epoch, until that gives the job back, and nothing to change
// once the job is over.
func (v *Verdict) judgeHistory(history []Glimpse, strikes []Strike) {
	sessions := map[int64]string{}
	for i, now := range history {
		was := history[max(0, i-1)]
		if slices.ContainsFunc(strikes, func(s Strike) bool { return s.Forgot && was.At.Before(s.At) && now.At.After(s.At) }) {
			clear(sessions)
			was = now
		}
		if known, seen := sessions[now.Epoch]; seen && known != now.Session && now.Session != "" {
			v.wrong("epoch %d belongs to %q, and then to %q", now.Epoch, known, now.Session)
		}
		sessions[now.Epoch] = now.Session
		switch {
		case was.Over && !sameFinal(was, now):
			v.wrong("a job that was over changed from %+v to %+v", was, now)
		case now.Epoch < was.Epoch || now.Version < was.Version:
			v.wrong("the record went back from epoch %d, version %d to %d, %d", was.Epoch, was.Version, now.Epoch, now.Version)
		case now.RowsDone < was.RowsDone:
			v.wrong("rows done went back from %d to %d", was.RowsDone, now.RowsDone)
		}
	}
}

func sameFinal(a, b Glimpse) bool {
	a.At, b.At, a.Version, b.Version = time.Time{}, time.Time{}, 0, 0 // artifacts are still recorded
	return a == b
}

// judgeTakeovers wants a new epoch soon after every loss of the owner, unless
// the job was over before, or nobody was left to take it over.
func (v *Verdict) judgeTakeovers(e Evidence, l Limits) {
	for _, s := range e.Strikes {
		if !s.OwnerLost {
			continue
		}
		before := slices.IndexFunc(e.History, func(g Glimpse) bool { return g.At.After(s.At) }) - 1
		if before < 0 {
			v.wrong("%s: the record was not seen before and after it", s.Fault)
			continue
		}
		old := e.History[before].Epoch
		next := slices.IndexFunc(e.History, func(g Glimpse) bool { return g.At.After(s.At) && (g.Epoch > old || g.Over) })
		if next < 0 {
			v.wrong("%s: nobody took the job over", s.Fault)
			continue
		}
		if e.History[next].Epoch == old {
			continue // over before it was noticed
		}
		if slices.ContainsFunc(e.Strikes, func(other Strike) bool {
			return other.AllLost && other.At.After(s.At) && other.At.Before(e.History[next].At)
		}) {
			continue
		}
		took := e.History[next].At.Sub(s.At)
		from := s.At
		for _, other := range e.Strikes { // in the order of time
			from = later(from, other.At)
			to := other.At.Add(other.Unwritten)
			if to.After(e.History[next].At) {
				to = e.History[next].At
			}
			took -= max(0, to.Sub(from))
			from = later(from, to)
		}
		v.Takeover = max(v.Takeover, took)
		if took > l.Takeover {
			v.wrong("%s: the job was taken over after %v, want %v at most", s.Fault, took.Round(10*time.Millisecond), l.Takeover)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// JudgeLedger wants an account to be charged for what its jobs used, no more
// and no less.
func JudgeLedger(charged, used Ledger) []string {
	if charged == used {
		return nil
	}
	return []string{fmt.Sprintf("the ledger says %+v, the rows say %+v", charged, used)}
}
