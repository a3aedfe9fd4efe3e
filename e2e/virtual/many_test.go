package virtual

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowmill/rowmill/internal/must"
)

var (
	manyNodes  = flag.Int("nodes", 12, "nodes of TestManyNodes")
	manyTime   = flag.Duration("lasts", time.Minute, "about how long its jobs last, in virtual time")
	manyJobs   = flag.Int("jobs", 1, "its jobs, all at once")
	manyLosses = flag.Duration("loss", 0, "a node is lost so often in virtual time, and back after half a minute; 0: none is")
)

// Bounds of TestManyNodes: engines are idle at the beginning of a job and during its last
// rows, and the number of store requests grows with the nodes, not with the rows.
const (
	leastUse     = 0.96 // least use of engines by one job of a minute: ideal time divided by real time
	mostRequests = 5.   // store requests per node and second: each node looks for jobs twice a second
)

// quarters is the number of periods of a job that are reported separately.
const quarters = 4

// manyShard is the number of rows of a shard. A worker has about two shards loaded.
const manyShard = 240

// TestManyNodes runs jobs on many nodes, with losses of nodes if -loss is set. It reports the
// use of the engines, and the requests to the store, the bucket and owners.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	s := Schedule{
		Seed:  1,
		Nodes: make([]Node, *manyNodes),
		Limits: Limits{
			ShardRows: manyShard, PartInterval: Duration(5 * time.Second), Lease: Duration(6 * time.Second), Slots: 8, Pace: Duration(time.Second),
		},
	}
	const begin = 10 * time.Second
	each := int(*manyTime / time.Duration(s.Pace) * time.Duration(s.Slots)) // rows
	for i := range *manyJobs {
		s.Jobs = append(s.Jobs, Job{At: Duration(begin), Node: i % len(s.Nodes), Rows: each * len(s.Nodes) / *manyJobs})
	}
	for i := 1; *manyLosses > 0 && time.Duration(i)**manyLosses < *manyTime; i++ {
		at := begin + time.Duration(i)**manyLosses
		s.Faults = append(s.Faults, Fault{Kind: "crash", Node: i * 7 % len(s.Nodes), At: Duration(at), For: Duration(30 * time.Second)})
	}
	sh := must.Get(newShared())(t)
	var v Verdict
	var w *world
	synctest.Test(t, func(*testing.T) { w, v = play(s, sh, slog.New(slog.DiscardHandler)) })
	for _, wrong := range v.Wrongs {
		t.Error(wrong)
	}
	from := slices.IndexFunc(v.trace, func(e entry) bool { return e.kind == "accepted" })
	to := -1
	for i, e := range v.trace {
		if e.kind == "store.finish" {
			to = i
		}
	}
	if from < 0 || to < from {
		t.Fatal("no job was accepted, or none has ended")
	}
	began, ended := v.trace[from].at, v.trace[to].at
	counts, requests := map[string]*[1 + quarters]int{}, 0
	for _, e := range v.trace[from:to] {
		if counts[e.kind] == nil {
			counts[e.kind] = new([1 + quarters]int)
		}
		counts[e.kind][0]++
		counts[e.kind][1+min(quarters-1, int(quarters*(e.at-began)/(ended-began)))]++
		if strings.HasPrefix(e.kind, "store.") {
			requests++
		}
	}
	took := (ended - began).Seconds()
	use, asked := manyTime.Seconds()/took, float64(requests)/took
	t.Logf("%d nodes, %d jobs, %d rows, %d reruns: %.1f s, %.3f of it their engines had work; %.0f requests to the store a second",
		len(s.Nodes), len(s.Jobs), each*len(s.Nodes), v.Reruns, took, use, asked)
	var first, idle, last, end time.Duration // sums over all nodes, except end
	for i, server := range w.servers {
		if server.first == 0 && *manyJobs == 1 {
			t.Errorf("node %d had no row", i)
		}
		end = max(end, server.last)
		first += server.first - began
		idle += server.last - server.first - server.busy/time.Duration(s.Slots)
		last += ended - server.last
	}
	n := time.Duration(len(s.Nodes))
	t.Logf("a node waits %.2f s for its first row, its slots %.2f s for others, and %.2f s after its last one for the end, which is %.2f s after the last of all",
		(first / n).Seconds(), (idle / n).Seconds(), (last / n).Seconds(), (ended - end).Seconds())
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		each := ""
		for _, n := range counts[kind][1:] {
			each += fmt.Sprintf("%8.1f", quarters*float64(n)/took)
		}
		t.Logf("%-22s %8.1f a second, in the quarters of the time %s", kind, float64(counts[kind][0])/took, each)
	}
	if *manyLosses == 0 && *manyTime >= time.Minute && use < leastUse {
		t.Errorf("the engines had work for %.3f of the time, less than %.2f", use, leastUse)
	}
	if most := mostRequests * float64(len(s.Nodes)**manyJobs); asked > most {
		t.Errorf("%.0f requests to the store a second, more than %.0f", asked, most)
	}
}
