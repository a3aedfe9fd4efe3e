package results

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/seed"
	"github.com/rowmill/rowmill/internal/shard"
)

// TestIDsKeepTheirTypes reads files with IDs of every type that pyarrow, DuckDB
// and polars write, and takes them through shards, parts and a merge. The same
// programs must find the same IDs with the same types in the results, so that a
// join with the source needs no cast.
func TestIDsKeepTheirTypes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: run without it to test other programs")
	}
	t.Parallel()
	program, dir := python(t), t.TempDir()
	script := filepath.Join("testdata", "ids.py")
	seed := strconv.FormatUint(seed.ForTest(t)%(1<<30), 10)
	if out, err := exec.Command(program, script, "make", dir, seed).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sources, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil || len(sources) < 30 {
		t.Fatalf("%d files, %v", len(sources), err)
	}
	for _, source := range sources {
		resultOf(t, source)
	}
	out, err := exec.Command(program, script, "check", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", bytes.TrimSpace(out))
}

// resultOf writes the result of a job beside the source file, in every format.
func resultOf(t *testing.T, source string) {
	t.Helper()
	file, err := os.ReadFile(source)
	must.Succeed(t, err)
	s, entries := entriesOf(t, file)
	var halves [2][]entry
	for i, e := range entries {
		halves[i%2] = append(halves[i%2], e)
	}
	var merged, full, asJSON bytes.Buffer
	parts := []PartSource{{Source: writePart(t, s, halves[0])}, {Source: writePart(t, s, halves[1])}}
	if rows, err := MergeParts(t.Context(), &merged, s, parts); err != nil || rows != int64(len(entries)) {
		t.Fatalf("%s: %d rows, %v", source, rows, err)
	}
	part := bytes.NewReader(merged.Bytes())
	got, err := readEntries(s, part) // resumed jobs copy rows from parts
	if err != nil || len(got) != len(entries) {
		t.Fatalf("%s: %d rows, %v; want %d", source, len(got), err, len(entries))
	}
	for i, e := range entries {
		if got[i].row.ID != e.row.ID {
			t.Fatalf("%s: the ID of row %d is %+v; want %+v", source, i, got[i].row.ID, e.row.ID)
		}
	}
	must.Get(ConcatParts(t.Context(), &full, s, []Source{part}, Full))(t)
	result := bytes.NewReader(full.Bytes())
	if read, err := ReadSchema(result); err != nil || !reflect.DeepEqual(read, s) {
		t.Fatalf("%s: the schema of its result is %+v, %v; want %+v", source, read, err, s)
	}
	must.Succeed(t, WriteJSON(t.Context(), &asJSON, result, s, Full))
	stem := strings.TrimSuffix(source, ".parquet")
	for name, data := range map[string][]byte{
		".result.parquet": full.Bytes(), ".json": asJSON.Bytes(), ".csv": []byte(csvOf(t, result, s, Full)),
	} {
		must.Succeed(t, os.WriteFile(stem+name, data, 0o600))
	}
}

// entriesOf returns the rows of a file as a shard returns them.
func entriesOf(t *testing.T, file []byte) (Schema, []entry) {
	t.Helper()
	rows := must.Get(input.Open(bytes.NewReader(file), int64(len(file)), input.Options{Column: "text", IDColumn: "id"}))(t)
	var object bytes.Buffer
	cut := shard.NewWriter(&object, 0, true)
	for {
		var row rowmill.Row
		if err := rows.Next(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		must.Succeed(t, cut.Add(row.Text, row.ID))
	}
	s := Schema{JobID: testJob, Model: "m", IDColumn: "id", IDType: rows.IDType()}
	must.Succeed(t, errors.Join(rows.Close(), cut.Close()))
	read := must.Get(shard.NewReader(bytes.NewReader(object.Bytes()), int64(object.Len()), nil))(t)
	entries := sampleEntries(s, 0, read.Rows())
	for i := range entries {
		block := must.Get(read.ReadBlock(read.BlockOf(i)))(t)
		entries[i].row.Text, entries[i].row.ID = block.Text(i), block.ID(i)
	}
	return s, entries
}
