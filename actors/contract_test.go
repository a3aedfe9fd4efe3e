package actors

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/rowmill/rowmill/actors/assign"
	"github.com/rowmill/rowmill/actors/commit"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/store"
)

// Every field of every message between nodes arrives unchanged. A text that is not
// UTF-8, such as an engine's error, stops no message.
func TestMessagesArriveUnchanged(t *testing.T) {
	t.Parallel()
	arrives(t, "report", func(h *assign.Heartbeat) { h.Waits = assign.WaitsForMemory }, func(h *assign.Heartbeat) (*assign.Heartbeat, error) {
		r, err := through(reportOf(h))
		if err != nil {
			return nil, err
		}
		return readReport(r)
	})
	arrives(t, "assignment", nil, func(a *assign.Assignment) (*assign.Assignment, error) {
		r, err := through(assignmentOf(a))
		if err != nil {
			return nil, err
		}
		return readAssignment(r)
	})
	withoutSample := func(m *invite) { // a worker does not need the whole input
		m.Input.Sample, m.Input.InputRows, m.Input.Estimated = nil, 0, shard.InputSize{}
	}
	arrives(t, "invite", withoutSample, func(m *invite) (*invite, error) {
		r, err := through(invitationOf(m))
		if err != nil {
			return nil, err
		}
		return readInvitation(r)
	})
	arrives(t, "hint", func(o *store.OrphanJob) { o.Claims, o.Status = nil, "" }, func(o *store.OrphanJob) (*store.OrphanJob, error) {
		r, err := through(hintOf(*o))
		read := orphanOf(r)
		return &read, err
	})
	for kind := range compactionKinds {
		arrives(t, "compaction: "+kind, func(m *compactionRequest) {
			m.Compaction.Make = kind
			s := &m.Compaction.Schema
			s.Kept, s.Unpacked, s.Meta, s.Specification = nil, nil, nil, ""
		}, func(m *compactionRequest) (*compactionRequest, error) {
			r, err := through(compactionOf(m))
			if err != nil {
				return nil, err
			}
			return readCompaction(r)
		})
	}
	arrives(t, "compaction that is known", func(m *compactionRequest) { m.Compaction = &commit.Compaction{Key: "k"} }, func(m *compactionRequest) (*compactionRequest, error) {
		r, err := through(compactionOf(m))
		if err != nil {
			return nil, err
		}
		return readCompaction(r)
	})
	rate := 1.5
	rows := &peerv1.LocateRowsResponse{Shards: 3, Complete: 1, Nodes: []*peerv1.NodeRows{{Node: "b", Assigned: 4, Done: 5, Rate: &rate}}}
	want := RowDistribution{Shards: 3, Complete: 1, Nodes: []NodeRows{{Node: "b", Assigned: 4, Done: 5, Rate: &rate}}}
	if diff := cmp.Diff(want, readRowDistribution(rows)); diff != "" {
		t.Errorf("rowDistribution (-want +read):\n%s", diff)
	}
	arrives(t, "filter", nil, func(f *registry.Filter) (*registry.Filter, error) {
		r, err := through(filterOf(*f))
		read := readFilter(r)
		return &read, err
	})
	for state := range actorStates {
		arrives(t, "listing: "+state, func(l *registry.Listing) {
			for i := range l.Actors {
				l.Actors[i].State = state
			}
		}, func(l *registry.Listing) (*registry.Listing, error) {
			r, err := through(listingOf(*l))
			read := readListing(r)
			return &read, err
		})
	}
}

// through returns a message as it arrives.
func through[M proto.Message](m M) (M, error) {
	read, _ := m.ProtoReflect().New().Interface().(M)
	raw, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(raw, read)
	}
	return read, err
}

// arrives fills a message, sends it and compares. settle sets the fields that take
// only certain values.
func arrives[M any](t *testing.T, name string, settle func(*M), send func(*M) (*M, error)) {
	t.Helper()
	sent, n := new(M), 0
	fill(reflect.ValueOf(sent).Elem(), &n, func(n int) string { return fmt.Sprint("text ", n) })
	if settle != nil {
		settle(sent)
	}
	read, err := send(sent)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	sets := cmp.Comparer(func(a, b assign.RowSet) bool { return string(a.Encode()) == string(b.Encode()) })
	if diff := cmp.Diff(sent, read, sets, cmpopts.IgnoreFields(assign.Fault{}, "Err"), cmpopts.IgnoreUnexported(invite{}, compactionRequest{})); diff != "" {
		t.Errorf("%s (-sent +read):\n%s", name, diff)
	}
	spoiled, n := new(M), 0
	fill(reflect.ValueOf(spoiled).Elem(), &n, func(int) string { return "\xff" })
	if settle != nil {
		settle(spoiled)
	}
	if _, err := send(spoiled); err != nil {
		t.Errorf("%s, with texts that are not UTF-8: %v", name, err)
	}
}

// made names the fields with texts that nodes make; they are always UTF-8.
var made = []string{"Job", "JobID", "Worker", "Address", "Session", "Key", "Acked", "Kind", "Task"}

// fill gives every field that can be set a value of its own.
func fill(v reflect.Value, n *int, text func(n int) string) {
	*n++
	switch value := v.Addr().Interface().(type) {
	case *assign.RowSet:
		*value = assign.NewRowSet(roaring.BitmapOf(uint32(*n), uint32(*n+2)))
		return
	case *time.Time:
		*value = time.Unix(int64(*n), 0).UTC()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f, kind := text, v.Field(i).Kind()
			if slices.Contains(made, v.Type().Field(i).Name) && (kind == reflect.String || kind == reflect.Slice) {
				f = func(n int) string { return fmt.Sprint("made ", n) }
			}
			if v.Field(i).CanSet() {
				fill(v.Field(i), n, f)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n, text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n, text)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(text(*n)), reflect.ValueOf(text(*n+1)))
	case reflect.String:
		v.SetString(text(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Interface: // an error that stays on its node
	default:
		panic(v.Type())
	}
}
