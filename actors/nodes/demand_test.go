package nodes

import (
	"reflect"
	"testing"
	"time"
)

func TestSumDemand(t *testing.T) {
	t.Parallel()
	early, late := time.Unix(10, 0), time.Unix(20, 0)
	got := SumDemand([]Demand{
		{Model: "z", Tokens: 5}, {Model: "a", Tokens: 1, Since: late}, {Model: "z", Tokens: 2, Urgent: true, Since: late}, {Model: "a", Tokens: 3, Since: early}, {Model: "a", Tokens: 4},
	})
	want := []Demand{{Model: "a", Tokens: 8, Since: early}, {Model: "z", Tokens: 7, Urgent: true, Since: late}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the sums are %+v, want %+v", got, want)
	}
}

// Nodes send a demand again only after a change that other nodes must know.
func TestDemandIsCloseTo(t *testing.T) {
	t.Parallel()
	sent := Demand{Model: "m", Names: []string{"n"}, Tokens: 1000, Since: time.Unix(10, 0)}
	for name, test := range map[string]struct {
		change func(*Demand)
		near   bool
	}{
		"nothing":            {func(*Demand) {}, true},
		"some rows less":     {func(d *Demand) { d.Tokens = 900 }, true},
		"many rows less":     {func(d *Demand) { d.Tokens = 899 }, false},
		"many rows more":     {func(d *Demand) { d.Tokens = 1101 }, false},
		"no rows":            {func(d *Demand) { d.Tokens = 0 }, false},
		"urgent rows":        {func(d *Demand) { d.Urgent = true }, false},
		"a server":           {func(d *Demand) { d.Since = time.Time{} }, false},
		"another model":      {func(d *Demand) { d.Model = "o" }, false},
		"another name":       {func(d *Demand) { d.Names = nil }, false},
		"the same time, UTC": {func(d *Demand) { d.Since = d.Since.UTC() }, true},
	} {
		now := sent
		test.change(&now)
		if now.IsCloseTo(sent) != test.near {
			t.Errorf("%s: near is %v", name, !test.near)
		}
		if (State{Demand: []Demand{now}}).IsCloseTo(State{Demand: []Demand{sent}}) != test.near {
			t.Errorf("%s: the states differ from the demands", name)
		}
	}
	if none := (Demand{}); (Demand{Tokens: 1}).IsCloseTo(none) {
		t.Error("the first row makes no difference")
	}
}
