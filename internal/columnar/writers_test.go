package columnar_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/pythontest"
)

// TestOtherWriters reads files of pyarrow, polars and DuckDB in every codec and
// encoding that these can write.
func TestOtherWriters(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: run without it to test other programs")
	}
	t.Parallel()
	program, dir := pythontest.FindPython(t, "we read no other program's Parquet", "pyarrow.parquet", "duckdb", "polars"), t.TempDir()
	if out, err := exec.Command(program, filepath.Join("testdata", "write.py"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := must.Get(os.ReadFile(filepath.Join(dir, "want.json")))(t)
	var files map[string]map[string][]string
	must.Succeed(t, json.Unmarshal(text, &files))
	if len(files) < 80 {
		t.Fatalf("%d files", len(files))
	}
	for name, columns := range files {
		data := must.Get(os.ReadFile(filepath.Join(dir, name)))(t)
		f := open(t, data)
		for column, want := range columns {
			if diff := cmp.Diff(want, texts(t, f, column)); diff != "" {
				t.Errorf("%s, column %s (-want +got):\n%.1000s", name, column, diff)
			}
		}
	}
}
