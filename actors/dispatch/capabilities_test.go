package dispatch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine"
)

func noneKnown(engine.ServedModel) bool { return false }

func listed(names ...string) (info engine.ServerInfo) {
	for _, name := range names {
		info.Models = append(info.Models, engine.ServedModel{Name: name})
	}
	return info
}

// asks verifies that the next model to test is this one; none if it is empty.
func (n *Capabilities) asks(t *testing.T, info engine.ServerInfo, now time.Time, model string) {
	t.Helper()
	if name, ok := n.NextToTest(info, now); name != model || ok != (model != "") {
		t.Fatalf("asks about %q, want %q", name, model)
	}
}

// Models are tested one at a time, each once, until the server comes up again.
func TestNatures_EachModelIsAskedOnce(t *testing.T) {
	t.Parallel()
	n, info, now := NewCapabilities(8, noneKnown), listed("a", "b"), time.Now()
	for _, want := range []string{"a", "b"} {
		n.asks(t, info, now, want)
		n.asks(t, info, now, "") // while it is not answered
		if !n.RecordResult(engine.ServedModel{Name: want}, engine.Capability{Kind: rowmill.KindEmbedding, Dimension: 3}, nil, now) {
			t.Errorf("%s is no news", want)
		}
	}
	n.asks(t, info, now.Add(time.Hour), "")
	n.RetestAll()
	if settled := n.WithResults(info); settled.Models[0].Kind != rowmill.KindEmbedding || settled.Models[0].Dimension != 3 {
		t.Errorf("until it is answered again a is %+v", settled.Models[0])
	}
	n.asks(t, info, now, "a") // the server came up again
	if n.RecordResult(engine.ServedModel{Name: "a"}, engine.Capability{Kind: rowmill.KindEmbedding, Dimension: 3}, nil, now) {
		t.Error("the same answer is news")
	}
	if info.Models[0].Kind != "" {
		t.Error("the answer of the server was changed")
	}
}

// A failed test is repeated after a pause, and the pause grows.
func TestNatures_AsksAgainAfterAPause(t *testing.T) {
	t.Parallel()
	n, info, now := NewCapabilities(8, noneKnown), listed("a"), time.Now()
	for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		n.asks(t, info, now, "a")
		n.RecordResult(info.Models[0], engine.Capability{}, errors.New("busy"), now)
		n.asks(t, info, now.Add(pause-1), "")
		now = now.Add(pause)
	}
	if m := n.WithResults(info).Models[0]; m.Kind != "" || m.Unusable != "" {
		t.Errorf("it is %+v", m)
	}
}

// A model is not tested if the server or the catalog says its kind. An adapter gets the
// kind of its base. Only the first models of a server with very many models are tested.
func TestNatures_ModelsWithoutATest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	known := func(m engine.ServedModel) bool { return m.Name == "known" }
	reported := engine.ServerInfo{Models: []engine.ServedModel{
		{Name: "known"},
		{Name: "reported", Kind: rowmill.KindGeneration},
		{Name: "adapter", Base: "base"},
		{Name: "vectors", Kind: rowmill.KindEmbedding},
		{Name: "base"},
	}}
	n := NewCapabilities(8, known)
	for _, want := range []string{"vectors", "base"} {
		n.asks(t, reported, now, want)
		kind := engine.Capability{Kind: rowmill.KindReasoning}
		if want == "vectors" {
			kind = engine.Capability{Kind: rowmill.KindEmbedding, Dimension: 7}
		}
		n.RecordResult(engine.ServedModel{Name: want}, kind, nil, now)
	}
	n.asks(t, reported, now, "")
	settled := n.WithResults(reported)
	if m := settled.Models[2]; m.Kind != rowmill.KindReasoning {
		t.Errorf("the adapter is %+v", m)
	}
	if m := settled.Models[3]; m.Dimension != 7 {
		t.Errorf("the vectors are %+v", m)
	}
	tuned := engine.ServerInfo{Models: []engine.ServedModel{{Name: "known"}, {Name: "tuned", Base: "known"}, {Name: "tuned too", Base: "known"}}}
	based := NewCapabilities(8, known)
	based.asks(t, tuned, now, "known") // for its adapters
	based.RecordResult(tuned.Models[0], engine.Capability{Kind: rowmill.KindGeneration}, nil, now)
	if m := based.WithResults(tuned).Models[2]; m.Kind != rowmill.KindGeneration {
		t.Errorf("the second adapter is %+v", m)
	}
	based.asks(t, tuned, now, "")
	few := NewCapabilities(1, noneKnown)
	few.asks(t, listed("a", "b"), now, "a")
	few.RecordResult(engine.ServedModel{Name: "a"}, engine.Capability{Refusal: "no"}, nil, now)
	few.asks(t, listed("a", "b"), now, "") // at most one
	settled = few.WithResults(listed("a", "b"))
	if m := settled.Models[0]; !strings.Contains(m.Unusable, "refuses the rows (no)") || m.Kind != "" {
		t.Errorf("a is %+v", m)
	}
	if m := settled.Models[1]; !strings.Contains(m.Unusable, "at most 1 models of a server are tested") {
		t.Errorf("b is %+v", m)
	}
	off := NewCapabilities(-1, noneKnown)
	if off.WithResults(listed("a")).Models[0].Unusable == "" {
		t.Error("where nothing is asked it is not said that the model cannot be used")
	}
	off.asks(t, listed("a"), now, "")
	all := NewCapabilities(8, nil) // everything is known
	all.asks(t, listed("a"), now, "")
}

// If a server has no parser, and the template opens the reasoning, a short answer shows
// no reasoning.
func TestNatures_NamesShowReasoning(t *testing.T) {
	t.Parallel()
	n, now := NewCapabilities(8, noneKnown), time.Now()
	info := engine.ServerInfo{Models: []engine.ServedModel{{Name: "m", Origin: "Qwen/Qwen3-4B-Thinking-2507"}}}
	n.asks(t, info, now, "m")
	n.RecordResult(info.Models[0], engine.Capability{Kind: rowmill.KindGeneration}, nil, now)
	if m := n.WithResults(info).Models[0]; m.Kind != rowmill.KindReasoning {
		t.Errorf("it is %+v", m)
	}
}
