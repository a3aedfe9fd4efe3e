package virtual

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Schedule decides everything that happens in a world. It can be saved and run again.
type Schedule struct {
	Note  string `json:"note,omitempty"` // the fault that it once found
	Seed  uint64 `json:"seed"`           // of latencies, and of chances without a rate in a fault
	Nodes []Node `json:"nodes"`
	Limits
	Jobs   []Job   `json:"jobs"`
	Faults []Fault `json:"faults,omitempty"`
}

// Limits are settings of all nodes, small enough for many shards and parts.
type Limits struct {
	ShardRows    int      `json:"shard_rows"`
	PartInterval Duration `json:"part_interval"`
	PartBytes    int64    `json:"part_bytes,omitempty"` // 0: the default
	Lease        Duration `json:"lease"`
	Slots        int      `json:"slots"`                // of each engine
	Pace         Duration `json:"pace"`                 // approximate time of a row
	Places       int      `json:"places,omitempty"`     // jobs per node; 0: the default
	CostLimit    float64  `json:"cost_limit,omitempty"` // USD per month of defaultAccount; 0: no limit

	// How long defaultAccount keeps the data of jobs, and how long inputs stay for jobs
	// that continue others; 0: the default.
	RetentionDays  int      `json:"retention_days,omitempty"`
	InputRetention Duration `json:"input_retention,omitempty"`
}

// A Node is a machine of the cluster.
type Node struct {
	OwnsNone bool     `json:"owns_none,omitempty"`
	NoEngine bool     `json:"no_engine,omitempty"`
	Clock    Duration `json:"clock,omitempty"` // error of its clock
	Twin     bool     `json:"twin,omitempty"`  // it has the name of the first node
}

// A Job is a job that a client submits.
type Job struct {
	At      Duration `json:"at"`
	Node    int      `json:"node"` // the node that gets the first request
	Rows    int      `json:"rows"`
	Spooled bool     `json:"spooled,omitempty"` // it has too many rows for the record
	Schema  bool     `json:"schema,omitempty"`
	Broken  int      `json:"broken,omitempty"`  // number of rows that no engine answers
	Deadly  int      `json:"deadly,omitempty"`  // number of broken rows that crash their server
	Equal   int      `json:"equal,omitempty"`   // largest number of different rows, with dedup; 0: all are different, without dedup
	Cancel  Duration `json:"cancel,omitempty"`  // time of its cancel; 0: never
	Remove  Duration `json:"remove,omitempty"`  // time from its end until its client removes the data; 0: never
	Account string   `json:"account,omitempty"` // empty: defaultAccount; the same as that of the continued job
	Urgent  bool     `json:"urgent,omitempty"`  // priority 0
	From    string   `json:"from,omitempty"`    // how a server sends its rows (source.go); empty: they are in the request
	Poison  string   `json:"poison,omitempty"`  // when it kills its owner (poison.go); empty: never

	Limit int  `json:"limit,omitempty"` // it runs only this many of its rows, fewer than Rows; 0: all
	Rest  bool `json:"rest,omitempty"`  // it also runs the rows that the limit of the continued job left out, or the input of an estimate

	Estimate bool `json:"estimate,omitempty"` // it estimates the cost; its sample has all its rows, at most maxSample

	Pause  Duration `json:"pause,omitempty"`  // time of its pause; 0: never
	Paused Duration `json:"paused,omitempty"` // how long the pause lasts
	Switch bool     `json:"switch,omitempty"` // it gets the other priority at the end of the pause

	// Continues is the number of the job, from 1, that this job continues. The request
	// comes At after the end of that job, and the rows are the same.
	Continues int `json:"continues,omitempty"`

	// Reads is the number of another job, from 1: this job reads the stored input of that job.
	Reads int `json:"reads,omitempty"`

	// Reuses is the number of another job, from 1: this job takes over rows of that job. The request
	// comes At after the end of that job.
	Reuses int `json:"reuses,omitempty"`
}

// A Fault strikes at a time, or at the nth effect of a kind on Node. Node -1 means every
// node.
type Fault struct {
	Kind  string   `json:"kind"`
	Node  int      `json:"node"`
	At    Duration `json:"at,omitempty"`
	For   Duration `json:"for,omitempty"`   // duration, or time until the node comes back
	On    string   `json:"on,omitempty"`    // kind of effect, such as "store.finish"; empty: any effect that writes
	Nth   int      `json:"nth,omitempty"`   // 1: the first; 0: the fault strikes at a time
	After bool     `json:"after,omitempty"` // the fault strikes after the effect happened
	How   string   `json:"how,omitempty"`
	Rate  float64  `json:"rate,omitempty"` // share of messages or answers
	To    int      `json:"to,omitempty"`   // the other node
}

// twoAccounts reports whether two accounts have jobs.
func (s Schedule) twoAccounts() bool {
	return slices.ContainsFunc(s.Jobs, func(j Job) bool { return j.Account != "" })
}

// hostile reports whether an engine sends hostile answers.
func (s Schedule) hostile() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == "engine" && f.How == "hostile" })
}

// A Duration is a time.Duration with a text form such as 1.5s.
type Duration time.Duration

// MarshalText writes 1.5s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 1.5s.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// String returns the schedule as JSON with a line for each node, job and fault.
func (s Schedule) String() string {
	head := s
	head.Nodes, head.Jobs, head.Faults = nil, nil, nil
	var b strings.Builder
	text, _ := json.Marshal(head)
	body := strings.TrimSuffix(string(text), `"jobs":null}`)
	b.WriteString(strings.Replace(body, `"nodes":null,`, "", 1))
	list(&b, "\n \"nodes\": [", s.Nodes)
	list(&b, "],\n \"jobs\": [", s.Jobs)
	list(&b, "],\n \"faults\": [", s.Faults)
	b.WriteString("]}")
	return b.String()
}

func list[T any](b *strings.Builder, head string, items []T) {
	b.WriteString(head)
	for i, item := range items {
		if i > 0 {
			b.WriteString(",")
		}
		text, _ := json.Marshal(item)
		fmt.Fprintf(b, "\n  %s", text)
	}
}

// Parse reads the output of String.
func Parse(text []byte) (s Schedule, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read a schedule: %w", err)
	}
	for _, f := range s.Faults {
		if !known(f.Kind) {
			return s, fmt.Errorf("read a schedule: no fault is called %q", f.Kind)
		}
	}
	for i, j := range s.Jobs {
		if j.Continues < 0 || j.Continues > i {
			return s, fmt.Errorf("read a schedule: job %d continues job %d, which does not come before it", i+1, j.Continues)
		}
		if j.Reads < 0 || j.Reads > i {
			return s, fmt.Errorf("read a schedule: job %d reads job %d, which does not come before it", i+1, j.Reads)
		}
		if j.Reuses < 0 || j.Reuses > i {
			return s, fmt.Errorf("read a schedule: job %d reuses job %d, which does not come before it", i+1, j.Reuses)
		}
	}
	return s, nil
}
