package columnar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rowmill/rowmill/internal/must"
)

// TestAttached attaches bytes while it writes or splices a table, and reads
// them back by key. Both readers must still read the same rows.
func TestAttached(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rows []cells
		var file, spliced bytes.Buffer
		w := must.Get(NewTableWriter(&file, everyColumn(), []KeyValue{{"k", "v"}}, drawConfig(t)))(t)
		attached := map[string][]byte{}
		attach := func(to interface{ Attach(string, []byte) error }, key string) {
			attached[key] = rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "attached")
			must.Succeed(t, to.Attach(key, attached[key]))
		}
		for i, row := range drawRows(t) {
			if rapid.IntRange(0, 9).Draw(t, "attach") == 0 {
				attach(w, fmt.Sprint("x:", i))
			}
			rows = append(rows, row)
			must.Succeed(t, addCells(w, row))
		}
		attach(w, "x:last")
		must.Succeed(t, w.Close())
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
		s := must.Get(NewSplicer(&spliced, everyColumn(), []KeyValue{{"k", "v"}}))(t)
		attach(s, "x:first")
		must.Succeed(t, s.Append(context.Background(), openBytes(t, file.Bytes())))
		attach(s, "x:second")
		must.Succeed(t, s.Close())
		check(spliced.Bytes())
	})
}
