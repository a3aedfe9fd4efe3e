package actors

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/shard"
)

// at returns the view of an engine on the node at an address.
func at(address string) engineView {
	e := gpu("gpu@"+address, "", true)
	e.localName, e.address = "gpu", address
	return e
}

// crewOf makes the crew of a job with two shards of 50 rows each.
func crewOf(t *testing.T, engines ...engineView) (*jobWorkers, *metrics) {
	t.Helper()
	m := newMetrics(prometheus.NewRegistry(), registry.New(time.Now))
	w := newJobWorkers(rowmill.Spec{Model: rowmill.Model{ID: "m"}}, slog.New(slog.DiscardHandler), m, engines)
	var err error
	if w.owner, err = assign.NewOwner([]shard.ManifestEntry{{Rows: 50}, {First: 50, Rows: 50}}, nil); err != nil {
		t.Fatal(err)
	}
	return w, m
}

// report sends the crew a heartbeat of a worker that wants rows, and returns the
// outgoing.
func (w *jobWorkers) report(t *testing.T, worker string, number int64, now time.Time) (m *assign.Assignee, outgoing []outgoingAssignment) {
	t.Helper()
	h := &assign.Heartbeat{Worker: worker, Address: worker, Number: number, Fresh: number == 1, Engines: 1, Want: true, Hungry: true}
	m, _ = w.onHeartbeat(h, &messageLink{transport: &peerTransport{}, address: worker}, now)
	if m != nil {
		w.assignRows()
		w.queueAssignment(m)
	}
	return m, w.takeOutgoing()
}

// said returns the outgoing messages as texts: the address, and the number of rows or "stop".
func said(outgoing []outgoingAssignment) (out []string) {
	for _, l := range outgoing {
		rows := 0
		for _, b := range l.body.Batches {
			for _, s := range b.Spans {
				rows += s.Count()
			}
		}
		what := fmt.Sprint(rows)
		if l.body.Stop {
			what = "stop"
		}
		out = append(out, l.to.address+": "+what)
	}
	return out
}

func TestInvitedNodes(t *testing.T) {
	t.Parallel()
	w, _ := crewOf(t, at("a:1"), at("b:1"))
	others := []cluster.Member{{Peer: "a:1", Engines: true}, {Peer: "c:1", Engines: true}, {Peer: "d:1"}}
	now := time.Now()
	if got := w.nodesToInvite(others, false, now); !slices.Equal(got, []string{"", "a:1", "b:1", "c:1"}) {
		t.Errorf("before the first rows %q are invited, want every node that may have rows of an earlier owner", got)
	}
	if got := w.nodesToInvite(others, false, now); len(got) != 0 {
		t.Errorf("%q are invited a second time", got)
	}
	for i, address := range []string{"", "a:1", "b:1"} {
		if w.recordInviteAnswer(address, &invited{Working: address == "a:1"}, nil) {
			t.Errorf("rows may be assigned after %d of 4 answers", i+1)
		}
	}
	if w.recordInviteAnswer("c:1", nil, errors.New("no answer")) {
		t.Error("rows may be assigned before an earlier worker has reported")
	}
	if w.report(t, "a:1", 1, now); !w.invites.allReported() {
		t.Error("the crew waits for the earlier worker, which has reported")
	}
	w.owner.Assigning = true
	later := now.Add(inviteAgain)
	if got := w.nodesToInvite(others, false, later); !slices.Equal(got, []string{"b:1"}) {
		t.Errorf("%q are invited, but only b:1 has an engine and no worker", got)
	}
	w.engines = []engineView{at("")}
	if got := w.nodesToInvite(others, true, later); len(got) != 0 {
		t.Errorf("a node that leaves invites itself: %q", got)
	}
}

// A worker gets one message for all changes, with its latest assignment.
func TestALetterHasTheWholeAssignment(t *testing.T) {
	t.Parallel()
	w, m := crewOf(t, at("a:1"), at("b:1"))
	now := time.Now()
	a, outgoing := w.report(t, "a:1", 1, now)
	if got := said(outgoing); !slices.Equal(got, []string{"a:1: 0"}) {
		t.Errorf("outgoing before all workers have reported: %q", got)
	}
	w.owner.Assigning = true
	_, outgoing = w.report(t, "b:1", 1, now)
	got := said(outgoing)
	slices.Sort(got)
	if len(got) != 2 || !strings.HasPrefix(got[0], "a:1: ") || !strings.HasPrefix(got[1], "b:1: ") || slices.Contains(got, "b:1: 0") {
		t.Errorf("each of two workers gets one message with rows: %q", got)
	}
	w.updateWaitingRows(true)
	free := w.owner.CountFreeRows()
	if shown := testutil.ToFloat64(m.unassigned.WithLabelValues("m")); shown != float64(free) {
		t.Errorf("%v rows are shown as free, %d are", shown, free)
	}

	w.queueAssignment(a)
	w.loseWorker(a)
	outgoing = w.takeOutgoing()
	if got := said(outgoing); !slices.Contains(got, "a:1: stop") {
		t.Errorf("the lost worker gets no stop: %q", got)
	}
	if lost := testutil.ToFloat64(m.returned.WithLabelValues("lost")); lost == 0 {
		t.Error("the rows of the lost worker are not counted")
	}
	for range 2 {
		if m, outgoing := w.report(t, "a:1", 2, now); m != nil || !slices.Equal(said(outgoing), []string{"a:1: stop"}) {
			t.Errorf("a lost worker that comes back gets %q, want only a stop", said(outgoing))
		}
	}
	w.updateWaitingRows(false)
	if shown := testutil.ToFloat64(m.unassigned.WithLabelValues("m")); shown != 0 {
		t.Errorf("%v rows of a job that has ended are shown as free", shown)
	}
}

func TestSilentWorkersAreLost(t *testing.T) {
	t.Parallel()
	w, _ := crewOf(t, at("a:1"), at("b:1"), at(""))
	w.owner.Assigning = true
	const lease, patience = 6 * time.Second, time.Minute
	now := time.Now()
	w.report(t, "a:1", 1, now)
	w.report(t, "b:1", 1, now)
	w.report(t, "", 1, now) // another owner has taken the worker of this node over
	looks := func(now time.Time) []string {
		w.checkWorkers(lease, patience, now)
		return said(w.takeOutgoing())
	}
	for range 3 {
		now = now.Add(heartbeatInterval)
		w.report(t, "b:1", int64(now.UnixNano()), now)
		looks(now)
	}
	if w.owner.WorkerAt("a:1") == nil {
		t.Fatal("a worker is lost after three seconds")
	}
	before := now
	for now.Sub(before) < lease {
		now = now.Add(heartbeatInterval)
		w.report(t, "b:1", int64(now.UnixNano()), now)
		looks(now)
	}
	if w.owner.WorkerAt("a:1") != nil || w.owner.WorkerAt("") != nil || w.owner.WorkerAt("b:1") == nil {
		t.Error("a silent worker is not lost, or the other worker is")
	}
	now = now.Add(time.Hour) // this process was suspended
	looks(now)
	if w.owner.WorkerAt("b:1") == nil {
		t.Error("a worker is lost because its owner was suspended")
	}
}

func TestALetterThatDoesNotArrive(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		lost bool
	}{
		{errors.New("no answer in time"), false},
		{refuse(codeBusy, "busy"), false},
		{refuse(codeUnknownJob, "no worker here"), true},
		{fmt.Errorf("dial: %w", peer.ErrRefused), true},
	} {
		w, _ := crewOf(t, at("a:1"))
		w.owner.Assigning = true
		_, outgoing := w.report(t, "a:1", 1, time.Now())
		w.onUndelivered(outgoing[0].to, test.err)
		if lost := w.owner.WorkerAt("a:1") == nil; lost != test.lost {
			t.Errorf("%v: lost is %v", test.err, lost)
		}
	}
}

func TestAnEngineThatRefusesTheJob(t *testing.T) {
	t.Parallel()
	w, _ := crewOf(t, at("a:1"), at("b:1"))
	refusal := func(address string) *assign.Heartbeat {
		return &assign.Heartbeat{Address: address, Refused: map[string]string{"gpu": "no such adapter"}}
	}
	if why := w.recordRefusals(refusal("a:1")); why != "" || !w.hasEngine() {
		t.Errorf("one of two engines refuses the job, and the job has none left: %q", why)
	}
	if why := w.recordRefusals(refusal("a:1")); why != "" {
		t.Errorf("a repeated refusal counts again: %q", why)
	}
	if why := w.recordRefusals(refusal("b:1")); why != "no such adapter" || w.hasEngine() {
		t.Errorf("the reason of the last engine is %q", why)
	}
}

func TestReasonsWhyNoEngineRunsTheJob(t *testing.T) {
	t.Parallel()
	e := at("a:1")
	e.info.Models = nil
	w, _ := crewOf(t, e)
	if got := w.noEngineReason(); got != "" {
		t.Errorf("with no model served the message is %q", got)
	}
	for i := range namedModels + 1 {
		w.engines[0].info.Models = append(w.engines[0].info.Models, at("").info.Models[0])
		w.engines[0].info.Models[i].Name = fmt.Sprint("other-", i)
	}
	if got := w.noEngineReason(); got != " The engines serve only other models now." {
		t.Errorf("the message about many served models is %q", got)
	}
	w.engines[0].info.Models = w.engines[0].info.Models[:2]
	if got := w.noEngineReason(); got != " Served now: other-0, other-1." {
		t.Errorf("the message about served models is %q", got)
	}
	for failure, want := range map[string]string{
		"":                             " gpu starts when its turn comes.",
		"the server ended with code 1": " gpu cannot start: it ended with code 1.",
		"a signal ended the server: x": " gpu cannot start.",
		"the server did not answer within 5m0s (a signal ended the server: killed); raise `ready`": " gpu cannot start: it did not answer within 5m0s.",
	} {
		w.engines = []engineView{gpu("gpu", "", false)}
		w.engines[0].startable, w.engines[0].failure = true, failure
		if got := w.noEngineReason(); got != want {
			t.Errorf("with the failure %q the message is %q", failure, got)
		}
	}
	w.engines = []engineView{gpu("gpu", "", false)}
	w.engines[0].err = errors.New("connection refused")
	if got := w.noEngineReason(); !strings.Contains(got, "does not answer its probes") {
		t.Errorf("the message about a server that is down is %q", got)
	}
}

func TestAQuestionBeforeTheRowsAreCounted(t *testing.T) {
	t.Parallel()
	w, _ := crewOf(t)
	owner := w.owner
	name := func(address string) string { return "node " + address }
	w.owner = nil
	for _, answer := range []any{w.locateRow(getRow{"job", 1}), w.rowDistribution("job", true, name, time.Now())} {
		if refused, is := answer.(*peer.Refusal); !is || refused.Code != codeUnknownJob {
			t.Errorf("answered with %v", answer)
		}
	}
	w.owner = owner
	if _, is := w.rowDistribution("job", false, name, time.Now()).(*peer.Refusal); !is {
		t.Error("rows are counted before the whole input is read")
	}
	w.report(t, "a:1", 1, time.Now())
	w.owner.Assigning = true
	w.report(t, "a:1", 2, time.Now())
	res, _ := w.rowDistribution("job", true, name, time.Now()).(*peerv1.LocateRowsResponse)
	arrived, err := through(res)
	if got := readRowDistribution(arrived); err != nil || got.Shards != 2 || got.Complete != 0 || len(got.Nodes) != 1 || got.Nodes[0].Node != "node a:1" || got.Nodes[0].Assigned != 100-w.owner.CountFreeRows() || got.Nodes[0].Assigned == 0 {
		t.Errorf("the rows are at %+v, %v", got, err)
	}
	if p, is := w.locateRow(getRow{"job", 70}).(assign.RowLocation); !is || p.State == assign.Elsewhere {
		t.Errorf("row 70 is %+v", p)
	}
}
