package columnar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestAttached attaches bytes while it writes or splices a table, and reads
// them back by key. Both readers must still read the same rows.
func TestAttached(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rows []cells
		var file, spliced bytes.Buffer
		w, err := NewTableWriter(&file, everyColumn(), []KeyValue{{"k", "v"}}, drawConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		attached := map[string][]byte{}
		attach := func(to interface{ Attach(string, []byte) error }, key string) {
			attached[key] = rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "attached")
			if err := to.Attach(key, attached[key]); err != nil {
				t.Fatal(err)
			}
		}
		for i, row := range drawRows(t) {
			if rapid.IntRange(0, 9).Draw(t, "attach") == 0 {
				attach(w, fmt.Sprint("x:", i))
			}
			rows = append(rows, row)
			if err := addCells(w, row); err != nil {
				t.Fatal(err)
			}
		}
		attach(w, "x:last")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		check := func(file []byte) {
			t.Helper()
			table := openBytes(t, file)
			sameRows(t, "read", readCells(t, table), rows)
			sameRows(t, "parquet-go", oracleCells(t, file), rows)
			keys := table.Keys("x:")
			if len(keys) != len(attached) || table.Meta("k") != "v" {
				t.Fatalf("%d keys, want %d", len(keys), len(attached))
			}
			for _, key := range keys {
				if b, err := table.ReadAttachment(key); err != nil || !bytes.Equal(b, attached[key]) {
					t.Fatalf("%q: %x, %v; want %x", key, b, err, attached[key])
				}
			}
			for _, key := range []string{"k", "none"} {
				if _, err := table.ReadAttachment(key); !errors.Is(err, ErrDamaged) {
					t.Fatalf("%q: error %v", key, err)
				}
			}
		}
		check(file.Bytes())

		clear(attached)
		s, err := NewSplicer(&spliced, everyColumn(), []KeyValue{{"k", "v"}})
		if err != nil {
			t.Fatal(err)
		}
		attach(s, "x:first")
		if err := s.Append(context.Background(), openBytes(t, file.Bytes())); err != nil {
			t.Fatal(err)
		}
		attach(s, "x:second")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		check(spliced.Bytes())
	})
}
