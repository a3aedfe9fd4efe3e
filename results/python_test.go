package results

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/pythontest"
)

// python returns a Python that has pyarrow and DuckDB.
func python(t *testing.T) string {
	t.Helper()
	return pythontest.FindPython(t, "no other program reads our Parquet", "pyarrow.parquet", "duckdb")
}

// manifestColumn describes a column for check.py.
type manifestColumn struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Nullable bool   `json:"nullable"`
	Values   []any  `json:"values"`
}

// TestOtherReaders reads a part and every variant of every schema with pyarrow,
// DuckDB and, if installed, polars.
func TestOtherReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: run without it to test other programs")
	}
	t.Parallel()
	program := python(t)
	dir := t.TempDir()
	type file struct {
		Path    string           `json:"path"`
		Columns []manifestColumn `json:"columns"`
		Groups  int              `json:"groups"`
	}
	var manifest []file
	for name, s := range schemas() {
		const rows = 300
		all := sampleEntries(s, 0, 2*rows)
		all[17].row.Text = strings.Repeat("\U0010FFFF", 70_000) // fills a page alone and has the highest possible bound
		all[rows+9].row.Text = strings.Repeat("long ", 60_000)
		parts := []Source{writePart(t, s, all[:rows]), writePart(t, s, all[rows:])}
		put := func(label string, data []byte, columns []manifestColumn, groups int) {
			path := filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+"-"+label+".parquet")
			must.Succeed(t, os.WriteFile(path, data, 0o600))
			manifest = append(manifest, file{path, columns, groups})
		}
		for _, v := range variants() {
			var b bytes.Buffer
			must.Get(ConcatParts(context.Background(), &b, s, parts, v))(t)
			put(v.Name(), b.Bytes(), clientColumns(s, v, all), 2)
		}
		put("part", contents(t, parts[1]), append(clientColumns(s, Full, all[rows:]), reservedColumns(all[rows:])...), 1)
		var b bytes.Buffer
		must.Get(ConcatRows(context.Background(), &b, s, parts))(t)
		put("rows", b.Bytes(), reservedColumns(all), 2)
		b.Reset()
		must.Get(ConcatParts(context.Background(), &b, s, nil, Full))(t)
		put("empty", b.Bytes(), clientColumns(s, Full, nil), 0)
	}
	text, err := json.Marshal(manifest)
	must.Succeed(t, err)
	path := filepath.Join(dir, "manifest.json")
	must.Succeed(t, os.WriteFile(path, text, 0o600))
	out, err := exec.Command(program, filepath.Join("testdata", "check.py"), path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%d files read by pyarrow, DuckDB and %s", len(manifest), bytes.TrimSpace(out))
}

// number encodes a float so that Python does not read an integer.
func number(v float64, bits int) any { return json.RawMessage(appendFloat(nil, v, bits, true)) }

func clientColumns(s Schema, v FileVariant, entries []entry) []manifestColumn {
	id := manifestColumn{Name: s.IDColumn, Nullable: true, Values: []any{}, Type: map[rowmill.IDKind]string{
		rowmill.IDString: "string", rowmill.IDInt: "int64", rowmill.IDUint: "uint64", rowmill.IDFloat: "double", rowmill.IDBool: "bool",
	}[s.IDKind]}
	inputs := manifestColumn{Name: columnInputs, Type: "string", Values: []any{}}
	output := manifestColumn{Name: s.JobID, Type: "string", Nullable: true, Values: []any{}}
	if s.Embedding {
		output.Type = "list<element: float>"
	}
	score := manifestColumn{Name: columnScore, Type: "double", Nullable: true, Values: []any{}}
	for _, e := range entries {
		id.Values = append(id.Values, map[rowmill.IDKind]any{
			rowmill.IDString: e.row.ID.Text, rowmill.IDInt: e.row.ID.Int, rowmill.IDUint: uint64(e.row.ID.Int),
			rowmill.IDFloat: number(e.row.ID.Real, 64), rowmill.IDBool: e.row.ID.Int == 1,
		}[e.row.ID.Kind])
		inputs.Values = append(inputs.Values, e.row.Text)
		switch {
		case e.out.Failed():
			output.Values = append(output.Values, nil)
		case s.Embedding:
			var list []any
			for _, f := range e.out.Embedding {
				list = append(list, number(float64(f), 64)) // Python widens floats exactly
			}
			output.Values = append(output.Values, list)
		default:
			output.Values = append(output.Values, e.out.Text)
		}
		if e.out.HasScore {
			score.Values = append(score.Values, number(e.out.Score, 64))
		} else {
			score.Values = append(score.Values, nil)
		}
	}
	var columns []manifestColumn
	for _, c := range []struct {
		keep   bool
		column manifestColumn
	}{{s.IDColumn != "", id}, {v.Inputs, inputs}, {true, output}, {v.Logprobs, score}} {
		if c.keep {
			columns = append(columns, c.column)
		}
	}
	return columns
}

func reservedColumns(entries []entry) []manifestColumn {
	texts := func(name string, value func(e entry) (string, bool)) manifestColumn {
		c := manifestColumn{Name: ReservedPrefix + name, Type: "string", Nullable: true, Values: []any{}}
		for _, e := range entries {
			if text, ok := value(e); ok {
				c.Values = append(c.Values, text)
			} else {
				c.Values = append(c.Values, nil)
			}
		}
		return c
	}
	ints := func(name string, value func(e entry) int64) manifestColumn {
		c := manifestColumn{Name: ReservedPrefix + name, Type: "int64", Values: []any{}}
		for _, e := range entries {
			c.Values = append(c.Values, value(e))
		}
		return c
	}
	seconds := manifestColumn{Name: columnSeconds, Type: "double", Nullable: true, Values: []any{}}
	for _, e := range entries {
		seconds.Values = append(seconds.Values, number(e.out.Seconds, 64))
	}
	failure := func(e entry) rowmill.RowError {
		if e.out.Err == nil {
			return rowmill.RowError{}
		}
		return *e.out.Err
	}
	return []manifestColumn{
		ints("row", func(e entry) int64 { return e.row.Index }),
		texts("finish_reason", func(e entry) (string, bool) { return string(e.out.Finish), e.out.Finish != "" }),
		ints("input_tokens", func(e entry) int64 { return e.out.InputTokens }),
		ints("output_tokens", func(e entry) int64 { return e.out.OutputTokens }),
		texts("engine", func(e entry) (string, bool) { return e.out.Engine, e.out.Engine != "" }),
		seconds,
		ints("attempts", func(e entry) int64 { return int64(e.out.Attempts) }),
		texts("error_code", func(e entry) (string, bool) { return failure(e).Code, e.out.Failed() }),
		texts("error_message", func(e entry) (string, bool) { return failure(e).Message, e.out.Failed() }),
		texts("raw_output", func(e entry) (string, bool) { return failure(e).Raw, failure(e).Raw != "" }),
	}
}
