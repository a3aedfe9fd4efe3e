package shard_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/shard"
)

// listCopies writes the copies of shards: originals holds the original of each row, or
// the row itself.
func listCopies(t testing.TB, shards []shard.ManifestEntry, originals []int64) []byte {
	t.Helper()
	var list bytes.Buffer
	w := shard.NewRowCopiesWriter(&list)
	for n, info := range shards {
		rows, distances := roaring.New(), []int64(nil)
		for rel := range info.Rows {
			if row := info.First + int64(rel); originals[row] != row {
				rows.Add(uint32(rel))
				distances = append(distances, row-originals[row])
			}
		}
		if rows.IsEmpty() {
			continue
		}
		must.Succeed(t, w.Add(n, rows, distances))
	}
	must.Succeed(t, w.Close())
	return list.Bytes()
}

func readCopies(list []byte, shards []shard.ManifestEntry) (*shard.RowCopies, error) {
	return shard.ReadRowCopies(bytes.NewReader(list), int64(len(list)), shards)
}

// resolved returns the original of each row of shards, or the row itself.
func resolved(t testing.TB, c *shard.RowCopies, list []byte, shards []shard.ManifestEntry) (originals []int64) {
	t.Helper()
	for n, info := range shards {
		for rel := range info.Rows {
			originals = append(originals, info.First+int64(rel))
		}
		if c.Rows(n) == nil {
			continue
		}
		of := must.Get(c.ReadOriginals(bytes.NewReader(list), n))(t)
		for i, rel := range c.Rows(n).ToArray() {
			originals[info.First+int64(rel)] = of[i]
		}
	}
	return originals
}

func TestCopiesProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var shards []shard.ManifestEntry
		var texts []int
		for range rapid.IntRange(0, 5).Draw(t, "shards") {
			info := shard.ManifestEntry{First: int64(len(texts)), Rows: rapid.IntRange(1, 60).Draw(t, "rows")}
			shards = append(shards, info)
			texts = append(texts, rapid.SliceOfN(rapid.IntRange(0, 30), info.Rows, info.Rows).Draw(t, "texts")...)
		}
		first := make(map[int]int64)
		originals := make([]int64, len(texts))
		copies := int64(0)
		for row, text := range texts {
			if _, seen := first[text]; !seen {
				first[text] = int64(row)
			} else {
				copies++
			}
			originals[row] = first[text]
		}
		tb := testing.TB(noTB{t: t})
		list := listCopies(tb, shards, originals)
		c := must.Get(readCopies(list, shards))(t)
		if diff := cmp.Diff(originals, append([]int64{}, resolved(tb, c, list, shards)...)); diff != "" || c.Count() != copies {
			t.Fatalf("%d copies, want %d (-want +got):\n%s", c.Count(), copies, diff)
		}
		for n, info := range shards {
			last, needed := 0, roaring.New()
			for row, of := range originals {
				if of == int64(row) {
					continue
				}
				if m := c.ShardOf(of); c.ShardOf(int64(row)) == n {
					last = max(last, m)
				}
				if c.ShardOf(of) == n {
					needed.Add(uint32(of - info.First))
				}
			}
			got := c.OriginalRows(n)
			if got == nil {
				got = roaring.New()
			}
			if !got.Equals(needed) || c.LastOriginalShard(n) != last {
				t.Fatalf("shard %d: rows %v are needed, the last shard is %d; want %v, %d", n, got, c.LastOriginalShard(n), needed, last)
			}
		}
	})
}

// noTB allows helpers of tests in a property.
type noTB struct {
	testing.TB
	t *rapid.T
}

func (noTB) Helper()             {}
func (n noTB) Fatal(args ...any) { n.t.Fatal(args...) }

// threeShards returns shards with two copies in the second and one in the third.
func threeShards(t testing.TB) ([]shard.ManifestEntry, []byte) {
	t.Helper()
	shards := []shard.ManifestEntry{{First: 0, Rows: 2}, {First: 2, Rows: 3}, {First: 5, Rows: 2}}
	return shards, listCopies(t, shards, []int64{0, 1, 0, 3, 3, 5, 1})
}

func TestEveryDamageOfAListOfCopiesIsFound(t *testing.T) {
	t.Parallel()
	shards, list := threeShards(t)
	for n := range list {
		if _, err := readCopies(list[:n], shards); !errors.Is(err, shard.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	for i := range list {
		for bit := range 8 {
			bad := bytes.Clone(list)
			bad[i] ^= 1 << bit
			if _, err := readCopies(bad, shards); !errors.Is(err, shard.ErrCorrupt) {
				t.Fatalf("bit %d of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	if _, err := readCopies(append(bytes.Clone(list), 0), shards); !errors.Is(err, shard.ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	if _, err := readCopies(list, shards[:2]); !errors.Is(err, shard.ErrCorrupt) {
		t.Errorf("of a shard too many: %v", err)
	}
}

// repairCopies returns a list with checksums that fit its other bytes, if it looks like
// a list.
func repairCopies(body []byte) []byte {
	list, table := bytes.Clone(body), crc32.MakeTable(crc32.Castagnoli)
	for at := 8; at+16 <= len(list); {
		size := int64(binary.LittleEndian.Uint32(list[at+4:])) + int64(binary.LittleEndian.Uint32(list[at+8:]))
		if size > int64(len(list)-at-16) {
			break
		}
		end := at + 16 + int(size)
		sum := crc32.Update(crc32.Checksum(list[at:at+12], table), table, list[at+16:end])
		binary.LittleEndian.PutUint32(list[at+12:], sum)
		at = end
	}
	return list
}

func FuzzCopies(f *testing.F) {
	shards, list := threeShards(f)
	f.Add(list)
	f.Add([]byte("RMCOPY01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		list := repairCopies(body)
		c, err := readCopies(list, shards)
		if err != nil {
			if !errors.Is(err, shard.ErrCorrupt) {
				t.Fatalf("error is not ErrCorrupt: %v", err)
			}
			return
		}
		originals := resolved(t, c, list, shards)
		for row, of := range originals {
			if of > int64(row) || of < 0 || originals[of] != of {
				t.Fatalf("row %d is a copy of row %d, and that of %d", row, of, originals[of])
			}
		}
		again, err := readCopies(listCopies(t, shards, originals), shards)
		if err != nil || again.Count() != c.Count() {
			t.Fatalf("rewritten list: %v", err)
		}
	})
}
