package virtual

import (
	"flag"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	manyNodes = flag.Int("nodes", 12, "nodes of TestManyNodes")
	manyTime  = flag.Duration("lasts", time.Minute, "about how long its job lasts, in virtual time")
)

// Bounds of TestManyNodes: what engines are idle of is the begin of the job and its
// last rows, and what the store is asked grows with the nodes and not with the rows.
const (
	leastUse     = 0.96 // of the time that the engines would take without Rowmill
	mostRequests = 5.   // of the store, for each node a second: a node alone looks for jobs twice a second
)

// A job on many nodes that lose nobody: how near it comes to what their engines
// could do, and what it asks of the store, of the bucket and of its owner.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	s := Schedule{
		Seed:  1,
		Nodes: make([]Node, *manyNodes),
		Limits: Limits{
			ShardRows: 16384, PartInterval: Duration(5 * time.Second), Lease: Duration(6 * time.Second), Slots: 8, Pace: Duration(time.Second),
		},
	}
	each := int(*manyTime / time.Duration(s.Pace) * time.Duration(s.Slots)) // rows
	s.Jobs = []Job{{At: Duration(10 * time.Second), Rows: each * len(s.Nodes)}}
	sh, err := newShared()
	if err != nil {
		t.Fatal(err)
	}
	var v Verdict
	synctest.Test(t, func(*testing.T) { v = run(s, sh, slog.New(slog.DiscardHandler)) })
	for _, wrong := range v.Wrongs {
		t.Error(wrong)
	}
	from := slices.IndexFunc(v.trace, func(e entry) bool { return e.kind == "accepted" })
	to := slices.IndexFunc(v.trace, func(e entry) bool { return e.kind == "store.finish" })
	if from < 0 || to < from {
		t.Fatal("the job was not accepted, or did not end")
	}
	counts, requests := map[string]int{}, 0
	for _, e := range v.trace[from:to] {
		counts[e.kind]++
		if strings.HasPrefix(e.kind, "store.") {
			requests++
		}
	}
	took := (v.trace[to].at - v.trace[from].at).Seconds()
	use, asked := manyTime.Seconds()/took, float64(requests)/took
	t.Logf("%d nodes, %d rows: %.1f s, %.3f of it their engines had work; %.0f requests to the store a second", len(s.Nodes), s.Jobs[0].Rows, took, use, asked)
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%-24s %8.1f a second", kind, float64(counts[kind])/took)
	}
	if use < leastUse {
		t.Errorf("the engines had work for %.3f of the time, less than %.2f", use, leastUse)
	}
	if most := mostRequests * float64(len(s.Nodes)); asked > most {
		t.Errorf("%.0f requests to the store a second, more than %.0f", asked, most)
	}
}
