package records

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/jsonpreserve"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/storetest"
)

func TestSectionsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.String()).Draw(t, "sections")
		var raw []byte
		for _, section := range want {
			raw = appendSection(raw, section)
		}
		got, err := decodeSections(raw)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q came back as %q, %v", want, got, err)
		}
	})
}

func TestSpecRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rowmill.Spec{
			Account:  rapid.String().Draw(t, "account"),
			System:   rapid.String().Draw(t, "system"),
			Sampling: map[string]any{"seed": json.Number("4611686018427387905")},
			Seeds:    rowmill.Seeds{Seed: rapid.Int64().Draw(t, "seed")},
		}
		if n := rapid.IntRange(0, 3).Draw(t, "rows"); n > 0 {
			want.Inline = rapid.SliceOfN(rapid.String(), n, n).Draw(t, "inline")
		}
		if rapid.Bool().Draw(t, "has schema") {
			want.Schema = json.RawMessage(`{"a": 1}`)
		}
		raw, err := encodeSpec(nil, want)
		must.Succeed(t, err)
		got, err := decodeSpec(raw)
		must.Succeed(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		again, err := encodeSpec(raw, got)
		if err != nil || !slices.Equal(raw, again) {
			t.Fatalf("a specification read back is written differently: %v", err)
		}
	})
}

// TestOrderKey checks that keys sort like their jobs.
func TestOrderKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time { return time.Unix(0, rapid.Int64().Draw(t, name)) }
		a, b := at("a"), at("b")
		got := slices.Compare(accountTimeKey("acc", a, "job-1"), accountTimeKey("acc", b, "job-1"))
		if want := a.Compare(b); got != want {
			t.Fatalf("keys compare as %d, times as %d", got, want)
		}
		account, created, id, ok := splitAccountTimeKey(accountTimeKey("acc", a, "job-1"))
		if !ok || account != "acc" || id != "job-1" || !slices.Equal(created, encodeTime(a)) {
			t.Fatalf("split: %q %x %q %v", account, created, id, ok)
		}
	})
}

// FuzzReadSections decodes damaged values: each gives an error, never a panic.
func FuzzReadSections(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendSection(appendSection(nil, "a"), ""))
	f.Add([]byte{5, 'a'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, raw []byte) {
		sections, err := decodeSections(raw)
		if err != nil {
			return
		}
		total := 0
		for _, section := range sections {
			total += len(section)
		}
		if total > len(raw) {
			t.Errorf("%d bytes of sections in %d bytes", total, len(raw))
		}
		if first, err := firstSection(raw); len(sections) > 0 && (err != nil || string(first) != sections[0]) {
			t.Errorf("the first section is %q, alone %q, %v", sections[0], first, err)
		}
		_, _ = decodeSpec(raw)
		var job rowmill.Job
		_ = decodeTexts(raw, &job)
	})
}

// BenchmarkHeader measures the encoding of a record for a commit, including the search
// for unknown members of the stored record.
func BenchmarkHeader(b *testing.B) {
	rec := storetest.NewRecord("job-1", "account", "row")
	h := jobHeader{Record: rec, Account: "account"}
	plain := must.Get(json.Marshal(h))(b)
	newer := append(bytes.Clone(plain[:len(plain)-1]), `,"new":{"member":[1]}}`...)
	for _, bb := range []struct {
		name   string
		stored []byte
	}{{"encoded_alone", nil}, {"nothing_unknown", plain}, {"unknown", newer}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must.Get(jsonpreserve.Rewrite(bb.stored, h))(b)
			}
		})
	}
}
