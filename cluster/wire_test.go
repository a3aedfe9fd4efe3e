package cluster

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowmill/rowmill/internal/must"
)

func TestUpdates(t *testing.T) {
	t.Parallel()
	sent := []memberUpdate{
		{id: "a-0", version: 1, doc: []byte("text")},
		{id: strings.Repeat("x", maxID), version: 1 << 60},
		{id: "b-1", leaving: true},
		{id: "c-2", version: 300, doc: bytes.Repeat([]byte{0}, 1000)},
	}
	var text []byte
	for i, n := range sent {
		text = n.append(text)
		if i == 1 { // a kind of a later release
			later := memberUpdate{id: "later", version: 7, doc: []byte("what?")}.append(nil)
			later[0] = 77
			text = append(text, later...)
		}
	}
	var got []memberUpdate
	must.Succeed(t, decodeUpdates(text, 1000, func(n memberUpdate) { got = append(got, n) }))
	if diff := cmp.Diff(sent, got, cmp.AllowUnexported(memberUpdate{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if err := decodeUpdates(text, 999, func(memberUpdate) {}); err == nil {
		t.Error("a document over the limit is accepted")
	}
	if err := decodeUpdates(text[:len(text)-1], 1000, func(memberUpdate) {}); err == nil {
		t.Error("half a message is accepted")
	}
}

// FuzzUpdates decodes any input, and encodes and decodes the result again.
func FuzzUpdates(f *testing.F) {
	f.Add(memberUpdate{id: "a-0", version: 1, doc: []byte("text")}.append(memberUpdate{id: "b", leaving: true}.append(nil)))
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		const limit = 64
		var first []memberUpdate
		_ = decodeUpdates(text, limit, func(n memberUpdate) { // messages before an error count
			if len(n.id) > maxID || len(n.doc) > limit {
				t.Fatalf("over a limit: %+v", n)
			}
			first = append(first, n)
		})
		var again []byte
		for _, n := range first {
			again = n.append(again)
		}
		var second []memberUpdate
		if err := decodeUpdates(again, limit, func(n memberUpdate) { second = append(second, n) }); err != nil {
			t.Fatalf("a decoded update cannot be decoded again: %v", err)
		}
		if diff := cmp.Diff(first, second, cmp.AllowUnexported(memberUpdate{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestProfile(t *testing.T) {
	t.Parallel()
	p := profile{Rowmill: 1, Node: strings.Repeat("n", 64), Peer: "p:1", API: "a:1", Engines: true, Owns: true, Protocol: 3, Started: 1}
	text := must.Get(encodeProfile(p))(t)
	if got, err := decodeProfile(text); err != nil || got != p {
		t.Errorf("%+v, %v; want %+v", got, err, p)
	}
	p.API = strings.Repeat("a", 300)
	if _, err := encodeProfile(p); err == nil || !strings.Contains(err.Error(), "API (300)") {
		t.Errorf("a description that is too long: %v, want the long field", err)
	}
	for _, foreign := range []string{"", "null", "{}", `{"node":"x"}`, `{"rowmill":2,"node":"x"}`, "\x01\x02"} {
		if _, err := decodeProfile([]byte(foreign)); err == nil {
			t.Errorf("%q is accepted as a Rowmill node", foreign)
		}
	}
}
