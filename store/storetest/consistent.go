package storetest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/kv"
)

// tables holds all keys and values of some tables: tables[TABLE][KEY] is the value.
type tables map[kv.Table]map[string][]byte

// CheckConsistency checks the tables of an engine directly: the indexes of jobs, the totals of
// jobs and the ledger must match the jobs and parts. s is the store over the engine; no one
// may use it meanwhile.
func CheckConsistency(t testing.TB, engine kv.Backend, s store.Store) {
	t.Helper()
	names := []kv.Table{"jobs", "accounts", "waiting", "owned", "parts", "partkeys", "reserved", "specs"}
	all := tables{}
	must.Succeed(t, engine.View(t.Context(), func(tx kv.Tx) error {
		for _, name := range names {
			all[name] = map[string][]byte{}
			for e, err := range tx.Scan(kv.Range{Table: name}) {
				if err != nil {
					return err
				}
				all[name][string(e.Key)] = bytes.Clone(e.Value)
			}
		}
		return nil
	}))
	listed := map[kv.Table]int{}
	used := map[string]store.RowTotals{} // sum of the parts of all jobs, by account
	for id, raw := range all["jobs"] {
		var h struct {
			store.Record
			Account string `json:"account"`
		}
		if err := json.Unmarshal(raw, &h); err != nil {
			t.Fatalf("job %s: %v", id, err)
		}
		ended := h.Job.Status.IsTerminal()
		created := binary.BigEndian.AppendUint64(nil, uint64(h.Job.Created.UnixNano())^(1<<63))
		place := h.Account + "\x00" + string(created) + id
		for table, want := range map[kv.Table]struct {
			key    string
			exists bool
			value  string
		}{
			"accounts": {place, true, ""},
			"waiting":  {place, !ended && h.Session == "", string(h.Job.Status)},
			"owned":    {place, !ended && h.Session != "", string(h.Job.Status) + "\x00" + h.Session},
			"reserved": {h.Account + "\x00" + id, h.Reserved != 0, ""},
			"specs":    {id, true, string(all["specs"][id])},
		} {
			value, exists := all[table][want.key]
			if exists != want.exists || exists && string(value) != want.value {
				t.Errorf("job %s (%s, session %q): table %s has its key: %v, with value %q; want %+v", id, h.Job.Status, h.Session, table, exists, value, want)
			}
			if exists {
				listed[table]++
			}
		}
		if ended && h.Reserved != 0 {
			t.Errorf("job %s is %s and has %v reserved, want no reservation", id, h.Job.Status, h.Reserved)
		}
		parts := must.Get(s.ListParts(t.Context(), id))(t)
		var sum store.RowTotals
		for _, p := range parts {
			sum = sum.Plus(p.Totals)
			key, known := all["partkeys"][id+"\x00"+p.Key]
			var stored store.Part
			if err := json.Unmarshal(all["parts"][id+"\x00"+string(key)], &stored); !known || err != nil || stored.Key != p.Key {
				t.Errorf("job %s: table partkeys leads from part %s to %q, %v", id, p.Key, stored.Key, err)
			}
		}
		listed["parts"] += len(parts)
		done := sum.Rows
		lost := must.Get(s.LostParts(t.Context(), id))(t)
		listed["parts"] += len(lost)
		for _, p := range lost {
			sum = sum.Plus(p.Totals)
		}
		if len(parts) > 0 && (h.Job.RowsDone != done || h.Job.InputTokens == nil || *h.Job.InputTokens != sum.InputTokens) {
			t.Errorf("job %s: the record has %d rows done and %v input tokens; its parts have %d rows, and %+v together with the lost parts", id, h.Job.RowsDone, h.Job.InputTokens, done, sum)
		}
		used[h.Account] = used[h.Account].Plus(sum)
	}
	for _, place := range all["partkeys"] {
		if len(place) > 1 { // otherwise the part was merged into a complete part
			listed["partkeys"]++
		}
	}
	if listed["partkeys"] != listed["parts"] {
		t.Errorf("table partkeys has %d parts, jobs have %d", listed["partkeys"], listed["parts"])
	}
	for _, table := range []kv.Table{"accounts", "waiting", "owned", "reserved", "specs", "parts"} {
		if len(all[table]) != listed[table] {
			t.Errorf("table %s has %d keys, but only %d belong to jobs", table, len(all[table]), listed[table])
		}
	}
	for account, want := range used {
		if got, _ := SumUsage(t, s, account, time.Time{}, time.Now().AddDate(1, 0, 0)); got != want {
			t.Errorf("account %s: the ledger has %+v, the parts %+v", account, got, want)
		}
	}
}
