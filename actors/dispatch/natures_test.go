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

func listed(names ...string) (info engine.Info) {
	for _, name := range names {
		info.Models = append(info.Models, engine.ServedModel{Name: name})
	}
	return info
}

// Models are tested one at a time, each once, until the server comes up again.
func TestNatures_EachModelIsAskedOnce(t *testing.T) {
	t.Parallel()
	n, info, now := NewNatures(8, noneKnown), listed("a", "b"), time.Now()
	for _, want := range []string{"a", "b"} {
		name, ok := n.Next(info, now)
		if !ok || name != want {
			t.Fatalf("asks about %q, %t, want %s", name, ok, want)
		}
		if other, ok := n.Next(info, now); ok {
			t.Fatalf("asks about %q while %s is not answered", other, want)
		}
		if !n.Answered(engine.ServedModel{Name: name}, engine.Capability{Kind: rowmill.KindEmbedding, Dimension: 3}, nil, now) {
			t.Errorf("%s is no news", name)
		}
	}
	if name, ok := n.Next(info, now.Add(time.Hour)); ok {
		t.Errorf("asks about %q again", name)
	}
	n.Renew()
	if settled := n.Settle(info); settled.Models[0].Kind != rowmill.KindEmbedding || settled.Models[0].Dimension != 3 {
		t.Errorf("until it is answered again a is %+v", settled.Models[0])
	}
	if name, ok := n.Next(info, now); !ok || name != "a" {
		t.Errorf("after the server came up again: %q, %t", name, ok)
	}
	if n.Answered(engine.ServedModel{Name: "a"}, engine.Capability{Kind: rowmill.KindEmbedding, Dimension: 3}, nil, now) {
		t.Error("the same answer is news")
	}
	if info.Models[0].Kind != "" {
		t.Error("the answer of the server was changed")
	}
}

// A failed test is repeated after a pause, and the pause grows.
func TestNatures_AsksAgainAfterAPause(t *testing.T) {
	t.Parallel()
	n, info, now := NewNatures(8, noneKnown), listed("a"), time.Now()
	for _, pause := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		if _, ok := n.Next(info, now); !ok {
			t.Fatalf("does not ask after a pause, before one of %v", pause)
		}
		n.Answered(info.Models[0], engine.Capability{}, errors.New("busy"), now)
		if _, ok := n.Next(info, now.Add(pause-1)); ok {
			t.Fatalf("asks before %v are over", pause)
		}
		now = now.Add(pause)
	}
	if m := n.Settle(info).Models[0]; m.Kind != "" || m.Unusable != "" {
		t.Errorf("it is %+v", m)
	}
}

// A model is not tested if the server or the catalog says its kind. An adapter gets the
// kind of its base. Only the first models of a server with very many models are tested.
func TestNatures_ModelsWithoutATest(t *testing.T) {
	t.Parallel()
	now := time.Now()
	known := func(m engine.ServedModel) bool { return m.Name == "known" }
	told := engine.Info{Models: []engine.ServedModel{
		{Name: "known"},
		{Name: "told", Kind: rowmill.KindGeneration},
		{Name: "adapter", Base: "base"},
		{Name: "vectors", Kind: rowmill.KindEmbedding},
		{Name: "base"},
	}}
	n := NewNatures(8, known)
	for _, want := range []string{"vectors", "base"} {
		name, ok := n.Next(told, now)
		if !ok || name != want {
			t.Fatalf("asks about %q, %t, want %s", name, ok, want)
		}
		kind := engine.Capability{Kind: rowmill.KindReasoning}
		if name == "vectors" {
			kind = engine.Capability{Kind: rowmill.KindEmbedding, Dimension: 7}
		}
		n.Answered(engine.ServedModel{Name: name}, kind, nil, now)
	}
	if name, ok := n.Next(told, now); ok {
		t.Errorf("asks about %s", name)
	}
	settled := n.Settle(told)
	if m := settled.Models[2]; m.Kind != rowmill.KindReasoning {
		t.Errorf("the adapter is %+v", m)
	}
	if m := settled.Models[3]; m.Dimension != 7 {
		t.Errorf("the vectors are %+v", m)
	}
	tuned := engine.Info{Models: []engine.ServedModel{{Name: "known"}, {Name: "tuned", Base: "known"}, {Name: "tuned too", Base: "known"}}}
	based := NewNatures(8, known)
	if name, _ := based.Next(tuned, now); name != "known" {
		t.Errorf("for adapters of a model that the catalog knows it asks about %q", name)
	}
	based.Answered(tuned.Models[0], engine.Capability{Kind: rowmill.KindGeneration}, nil, now)
	if m := based.Settle(tuned).Models[2]; m.Kind != rowmill.KindGeneration {
		t.Errorf("the second adapter is %+v", m)
	}
	if name, ok := based.Next(tuned, now); ok {
		t.Errorf("asks about %s", name)
	}
	few := NewNatures(1, noneKnown)
	if name, _ := few.Next(listed("a", "b"), now); name != "a" {
		t.Errorf("asks about %q first", name)
	}
	few.Answered(engine.ServedModel{Name: "a"}, engine.Capability{Refusal: "no"}, nil, now)
	if name, ok := few.Next(listed("a", "b"), now); ok {
		t.Errorf("asks about %s, the second of at most one", name)
	}
	settled = few.Settle(listed("a", "b"))
	if m := settled.Models[0]; !strings.Contains(m.Unusable, "refuses the rows (no)") || m.Kind != "" {
		t.Errorf("a is %+v", m)
	}
	if m := settled.Models[1]; !strings.Contains(m.Unusable, "at most 1 models of a server are tested") {
		t.Errorf("b is %+v", m)
	}
	if n := NewNatures(-1, noneKnown); n.Settle(listed("a")).Models[0].Unusable == "" {
		t.Error("where nothing is asked it is not said that the model cannot be used")
	} else if name, ok := n.Next(listed("a"), now); ok {
		t.Errorf("asks about %s", name)
	}
	none := NewNatures(8, nil)
	if name, ok := none.Next(listed("a"), now); ok {
		t.Errorf("asks about %s although everything is known", name)
	}
}

// If a server has no parser, and the template opens the reasoning, a short answer shows
// no reasoning.
func TestNatures_NamesShowReasoning(t *testing.T) {
	t.Parallel()
	n, now := NewNatures(8, noneKnown), time.Now()
	info := engine.Info{Models: []engine.ServedModel{{Name: "m", Origin: "Qwen/Qwen3-4B-Thinking-2507"}}}
	n.Next(info, now)
	n.Answered(info.Models[0], engine.Capability{Kind: rowmill.KindGeneration}, nil, now)
	if m := n.Settle(info).Models[0]; m.Kind != rowmill.KindReasoning {
		t.Errorf("it is %+v", m)
	}
}
