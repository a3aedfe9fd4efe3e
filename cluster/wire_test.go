package cluster

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNews(t *testing.T) {
	t.Parallel()
	sent := []news{
		{id: "a-0", version: 1, doc: []byte("text")},
		{id: strings.Repeat("x", maxID), version: 1 << 60},
		{id: "b-1", leaving: true},
		{id: "c-2", version: 300, doc: bytes.Repeat([]byte{0}, 1000)},
	}
	var text []byte
	for i, n := range sent {
		text = n.append(text)
		if i == 1 { // a kind of a later release
			later := news{id: "later", version: 7, doc: []byte("what?")}.append(nil)
			later[0] = 77
			text = append(text, later...)
		}
	}
	var got []news
	if err := decodeNews(text, 1000, func(n news) { got = append(got, n) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sent, got, cmp.AllowUnexported(news{}), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if err := decodeNews(text, 999, func(news) {}); err == nil {
		t.Error("a document over the limit is let in")
	}
	if err := decodeNews(text[:len(text)-1], 1000, func(news) {}); err == nil {
		t.Error("half a message is let in")
	}
}

// FuzzNews decodes anything, and what was decoded again.
func FuzzNews(f *testing.F) {
	f.Add(news{id: "a-0", version: 1, doc: []byte("text")}.append(news{id: "b", leaving: true}.append(nil)))
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		const limit = 64
		var first []news
		_ = decodeNews(text, limit, func(n news) { // what comes before an error counts
			if len(n.id) > maxID || len(n.doc) > limit {
				t.Fatalf("over a limit: %+v", n)
			}
			first = append(first, n)
		})
		var again []byte
		for _, n := range first {
			again = n.append(again)
		}
		var second []news
		if err := decodeNews(again, limit, func(n news) { second = append(second, n) }); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if diff := cmp.Diff(first, second, cmp.AllowUnexported(news{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestProfile(t *testing.T) {
	t.Parallel()
	p := profile{Rowmill: 1, Node: strings.Repeat("n", 64), Peer: "p:1", API: "a:1", Engines: true, Owns: true, Protocol: 3, Started: 1}
	text, err := encodeProfile(p)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeProfile(text); err != nil || got != p {
		t.Errorf("%+v, %v; want %+v", got, err, p)
	}
	p.API = strings.Repeat("a", 300)
	if _, err := encodeProfile(p); err == nil || !strings.Contains(err.Error(), "API (300)") {
		t.Errorf("too long a description: %v, want what is long", err)
	}
	for _, foreign := range []string{"", "null", "{}", `{"node":"x"}`, `{"rowmill":2,"node":"x"}`, "\x01\x02"} {
		if _, err := decodeProfile([]byte(foreign)); err == nil {
			t.Errorf("%q is taken for one of ours", foreign)
		}
	}
}
