package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A Glimpse is the record of a job in the store at some time.
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

// A Strike is the effect of a fault on a running job.
type Strike struct {
	Fault string
	At    time.Time
	Done  int64 // rows done at this time

	// OwnerLost says that the owner of the job died or cannot renew its lease:
	// another node must take over.
	OwnerLost bool

	// AllLost says that all processes died: no node takes over before they start
	// again.
	AllLost bool

	// Unwritten is how long no record can be written: no node takes over in this
	// time.
	Unwritten time.Duration

	// Forgot says that the store lost its last writes: the record goes back.
	Forgot bool

	// Forgets is how much later than At the store may lose these writes.
	Forgets time.Duration

	// Lives says that all processes run on and answer again before the next owner of a
	// job stops waiting for a node that downloads the input.
	Lives bool

	// MayFail is the code with which the job may fail after the strike; empty: none.
	MayFail string

	// Lost is how many nodes may lose their rows in flight and one flush.
	Lost int

	// Rows is how many more rows may run again.
	Rows int
}

// Limits are the bounds of the promises.
type Limits struct {
	// Takeover is the longest time from the loss of an owner to the next epoch.
	Takeover time.Duration
	// Flight is the largest number of rows of a node that are in flight, or answered and
	// not committed, also of an isolated node.
	Flight int
}

// reruns returns how many rows may run again after the strikes.
func (l Limits) reruns(strikes []Strike) int {
	bound := 0
	for _, s := range strikes {
		bound += s.Lost*l.Flight + s.Rows
	}
	return bound
}

// Evidence is everything known about a job after its end.
type Evidence struct {
	Inputs    []string
	Want      []Answer // answers to the inputs
	Results   Results
	Record    Record
	Later     Record     // the same, after all repairs
	History   []Glimpse  // oldest first
	Strikes   []Strike   // oldest first
	Sightings []Sighting // of all simulators, also of other jobs
	Left      []string   // leftovers of the job in bucket and Redis
	Downloads int        // number of downloads of its input
}

// A Verdict is the result of the judge.
type Verdict struct {
	Wrongs   []string      // broken promises
	Reruns   int           // number of repeated answers
	Bound    int           // bound for Reruns
	Aborted  int           // requests that ended before their answer
	Takeover time.Duration // longest; 0 without any
}

func (v *Verdict) wrong(format string, args ...any) {
	v.Wrongs = append(v.Wrongs, fmt.Sprintf(format, args...))
}

// Judge checks one job.
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

// judgeRecord checks that the job ended by itself, counted every row once, and did not change
// after its end.
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

// lasting returns the values of an ended job that must never change.
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

// judgeResults checks that there is exactly one output for each row, in order, with the
// answer to the row.
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

// judgeWork counts the requests in the witness logs: every row must be answered, and few
// rows twice.
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

// judgeHistory checks that epochs, versions and progress never go back, that an epoch has one
// session until the owner gives the job back, and that nothing changes after the end.
func (v *Verdict) judgeHistory(history []Glimpse, strikes []Strike) {
	sessions := map[int64]string{}
	for i, now := range history {
		was := history[max(0, i-1)]
		if slices.ContainsFunc(strikes, func(s Strike) bool { return s.Forgot && was.At.Before(s.At.Add(s.Forgets)) && now.At.After(s.At) }) {
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

// judgeTakeovers checks that a new epoch begins soon after every loss of the owner, unless the
// job had ended, or no node could take it over.
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
			v.wrong("%s: no node took the job over", s.Fault)
			continue
		}
		if e.History[next].Epoch == old {
			continue // the job ended before a node noticed the loss
		}
		if slices.ContainsFunc(e.Strikes, func(other Strike) bool {
			return other.AllLost && other.At.After(s.At) && other.At.Before(e.History[next].At)
		}) {
			continue
		}
		took := e.History[next].At.Sub(s.At)
		from := s.At
		for _, other := range e.Strikes { // oldest first
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

// settledLedger reads a ledger. After a power cut at Redis nodes write lost charges again, so
// settledLedger waits at most patience for the wanted ledger.
func settledLedger(ctx context.Context, patience time.Duration, want Ledger, read func(context.Context) (Ledger, error)) (Ledger, error) {
	for began := time.Now(); ; time.Sleep(lookEvery) {
		charged, err := read(ctx)
		if err != nil || charged == want || time.Since(began) >= patience {
			return charged, err
		}
	}
}

// JudgeLedger checks that an account is charged exactly for the use of its jobs.
func JudgeLedger(charged, used Ledger) []string {
	if charged == used {
		return nil
	}
	return []string{fmt.Sprintf("the ledger says %+v, the rows say %+v", charged, used)}
}
