package bolt

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/store/kv"
)

// salvaged returns the entries that Salvage copies from a file.
func salvaged(t *testing.T, path string) (map[string]string, error) {
	t.Helper()
	losses, _, err := Salvage(t.Context(), Config{Path: path}, path+".salvaged", func() error { return nil })
	if err != nil {
		return nil, err
	}
	s, err := Open(t.Context(), Config{Path: path + ".salvaged", MapBytes: 1 << 20})
	if err != nil {
		t.Fatalf("after the losses %v: %v", losses, err)
	}
	defer s.Close()
	entries := map[string]string{}
	err = s.db.View(func(btx *bbolt.Tx) error {
		return btx.ForEach(func(table []byte, _ *bbolt.Bucket) error {
			for e, err := range (&tx{btx: btx}).Scan(kv.Range{Table: kv.Table(table)}) {
				if err == nil {
					entries[string(table)+"/"+string(e.Key)] = string(e.Value)
				}
			}
			return nil
		})
	})
	must.Succeed(t, err)
	return entries, nil
}

// TestADamagedFileIsRefused damages a file at random places. Open must open it, or
// refuse it with an error that names the file; the process must not crash. Salvage keeps
// the entries of the other pages as they were.
func TestADamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "records.db")
	s := must.Get(Open(t.Context(), Config{Path: whole}))(t)
	for i := range 300 { // branches with leaves, a bucket with overflow pages, and inline buckets
		if i%50 == 0 {
			putLarge(t, s, i)
			continue
		}
		must.Succeed(t, s.Update(t.Context(), func(t kv.Tx) error {
			t.Put(kv.Table(fmt.Sprint("table-", i%7)), fmt.Append(nil, i), bytes.Repeat([]byte("x"), 200))
			if i%100 == 1 {
				t.Put(kv.Table(fmt.Sprint("inline-", i)), []byte("k"), nil)
			}
			return nil
		}))
	}
	must.Succeed(t, s.Close())
	stored := must.Get(salvaged(t, whole))(t)
	text := must.Get(os.ReadFile(whole))(t)
	const damages = 200
	random, refused, lost, most := rand.New(rand.NewPCG(1, 2)), 0, 0, 0
	used := bytes.LastIndexFunc(text, func(r rune) bool { return r != 0 })
	for i := range damages {
		broken := bytes.Clone(text)
		page := random.IntN(used / 4096)
		at := page * 4096
		var what string
		switch random.IntN(5) {
		case 0:
			what = fmt.Sprintf("page %d is zeros", page)
			clear(broken[at : at+4096])
		case 1:
			other := random.IntN(used / 4096)
			what = fmt.Sprintf("page %d is a copy of %d", page, other)
			copy(broken[at:at+4096], text[other*4096:])
		case 2:
			what = fmt.Sprintf("page %d was written half", page)
			copy(broken[at+512:at+4096], text[random.IntN(used/4096)*4096+512:])
		case 3:
			what = fmt.Sprintf("cut off at page %d", page)
			broken = broken[:at]
		default:
			at += random.IntN(64)
			what = fmt.Sprintf("byte %d is changed", at)
			broken[at] ^= byte(1 + random.IntN(255))
		}
		path := filepath.Join(t.TempDir(), fmt.Sprint("records-", i))
		must.Succeed(t, os.WriteFile(path, broken, 0o600))
		s, err := Open(t.Context(), Config{Path: path, MapBytes: 1 << 20})
		if err == nil {
			if err := s.Close(); err != nil {
				t.Errorf("%s: close: %v", what, err)
			}
			continue
		}
		refused++
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want it to name the file", what, err)
		}
		kept, err := salvaged(t, path)
		if err != nil {
			lost++
			continue
		}
		for key, value := range kept {
			if stored[key] != value {
				t.Errorf("%s: after the salvage %q is %q, was %q", what, key, value, stored[key])
			}
		}
		most = max(most, len(kept))
	}
	if lost > refused/4 || most < len(stored)/2 {
		t.Errorf("of %d refused files %d could not be salvaged; at most %d of %d entries were kept", refused, lost, most, len(stored))
	}
	if refused < damages/10 {
		t.Errorf("%d of %d were refused", refused, damages)
	}
}
