package nodes

import (
	"errors"
	"reflect"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/cluster"
	"github.com/rowmill/rowmill/engine"
)

func TestStatusAddsUpTheEngines(t *testing.T) {
	t.Parallel()
	models := func(names ...string) (out []engine.ServedModel) {
		for _, name := range names {
			out = append(out, engine.ServedModel{Name: name})
		}
		return out
	}
	engines := []Engine{{Window: 8, InFlight: 2, Models: models("z", "m")}, {Window: 4, InFlight: 4, Models: models("m")}}
	got := StatusOf(cluster.Member{ID: "n-1", Node: "n", API: "a", Peer: "p", Owns: true}, State{
		Version: "v1", Draining: true, Jobs: 3,
		Engines: engines,
	})
	want := Status{
		ID: "n-1", Name: "n", API: "a", Peer: "p", Version: "v1", Owns: true, Draining: true,
		Models: []string{"m", "z"}, Jobs: 3, Window: 12, InFlight: 6, Servers: engines,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("status is %+v, want %+v", got, want)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	list := []Status{{ID: "a-1", Name: "a"}, {ID: "b-1", Name: "b", Self: true}, {ID: "b-2", Name: "b"}, {ID: "c-1", Name: "a-1"}}
	for id, test := range map[string]struct {
		found string
		err   error
	}{
		"":    {"b-1", nil},
		"b-2": {"b-2", nil},
		"a":   {"a-1", nil},
		"a-1": {"a-1", nil}, // an id wins over a name
		"b":   {"", rowmill.ErrConflict},
		"d":   {"", rowmill.ErrNotFound},
	} {
		got, err := Find(list, id)
		if got.ID != test.found || !errors.Is(err, test.err) {
			t.Errorf("%q finds %q (%v), want %q (%v)", id, got.ID, err, test.found, test.err)
		}
	}
	if _, err := Find(nil, ""); !errors.Is(err, rowmill.ErrNotFound) {
		t.Errorf("no node: %v", err)
	}
}
