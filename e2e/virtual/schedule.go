package virtual

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Schedule is all that decides what becomes of a world: it can be kept, and
// run again.
type Schedule struct {
	Note  string `json:"note,omitempty"` // what it once found
	Seed  uint64 `json:"seed"`           // latencies, and chances that no fault names
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
	Pace         Duration `json:"pace"`                 // about what a row takes
	Places       int      `json:"places,omitempty"`     // of each node for jobs; 0: the default
	CostLimit    float64  `json:"cost_limit,omitempty"` // USD that defaultAccount may spend; 0: any

	// How long defaultAccount keeps the data of jobs, and inputs are kept for those
	// that continue others; 0: the default.
	RetentionDays  int      `json:"retention_days,omitempty"`
	InputRetention Duration `json:"input_retention,omitempty"`
}

// A Node is a machine of the cluster.
type Node struct {
	OwnsNone bool     `json:"owns_none,omitempty"`
	NoEngine bool     `json:"no_engine,omitempty"`
	Clock    Duration `json:"clock,omitempty"` // by how much its clock is off
	Twin     bool     `json:"twin,omitempty"`  // it has the name of the first
}

// A Job is what a client submits.
type Job struct {
	At      Duration `json:"at"`
	Node    int      `json:"node"` // who is asked first
	Rows    int      `json:"rows"`
	Spooled bool     `json:"spooled,omitempty"` // its rows are too many for the record
	Schema  bool     `json:"schema,omitempty"`
	Broken  int      `json:"broken,omitempty"`  // so many rows no engine answers
	Deadly  int      `json:"deadly,omitempty"`  // so many of those crash their server
	Equal   int      `json:"equal,omitempty"`   // so many rows are different at most, and equal ones run once; 0: all are, and nobody looks
	Cancel  Duration `json:"cancel,omitempty"`  // when it is cancelled; 0: never
	Remove  Duration `json:"remove,omitempty"`  // how long after its end its data is removed by its client; 0: never
	Account string   `json:"account,omitempty"` // whose it is, if not defaultAccount's; of one that continues another, as that
	Urgent  bool     `json:"urgent,omitempty"`  // it is of priority 0
	From    string   `json:"from,omitempty"`    // its rows are a server's, which sends them like this (source.go)
	Poison  string   `json:"poison,omitempty"`  // when it ends its owner (poison.go); "": never

	// Continues is the job, counted from 1, that this one takes over from: it is
	// asked for At after the end of that, whose rows it has.
	Continues int `json:"continues,omitempty"`
}

// A Fault strikes at a time, or at an effect: at the nth of a kind that Node
// has. Node -1 is every node.
type Fault struct {
	Kind  string   `json:"kind"`
	Node  int      `json:"node"`
	At    Duration `json:"at,omitempty"`
	For   Duration `json:"for,omitempty"`   // how long it lasts, or until the node comes back
	On    string   `json:"on,omitempty"`    // kind of effect, such as "store.finish"; "" is any that changes something
	Nth   int      `json:"nth,omitempty"`   // 1 is the first; 0: it strikes at a time
	After bool     `json:"after,omitempty"` // the effect has happened
	How   string   `json:"how,omitempty"`
	Rate  float64  `json:"rate,omitempty"` // share of messages or answers
	To    int      `json:"to,omitempty"`   // the other node
}

// twoAccounts reports whether two accounts have jobs.
func (s Schedule) twoAccounts() bool {
	return slices.ContainsFunc(s.Jobs, func(j Job) bool { return j.Account != "" })
}

// hostile reports whether an engine says what none should.
func (s Schedule) hostile() bool {
	return slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind == "engine" && f.How == "hostile" })
}

// A Duration is a time.Duration that is written as 1.5s.
type Duration time.Duration

// MarshalText writes 1.5s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads 1.5s.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// String is the schedule as JSON, a line for each node, job and fault.
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

// Parse reads what String wrote.
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
	}
	return s, nil
}
