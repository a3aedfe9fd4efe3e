package layers

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFloors checks the module against the table.
func TestFloors(t *testing.T) {
	t.Parallel()
	packages := list(t)
	if len(packages) < 5 {
		t.Fatalf("go list names %d packages; the rule would be checked against nothing", len(packages))
	}
	for _, broken := range RowmillRules().Check(packages) {
		t.Error(broken)
	}
}

// TestTopFolders compares the top folders of all packages with the table.
func TestTopFolders(t *testing.T) {
	t.Parallel()
	var folders []string
	for _, p := range list(t) {
		if path, _ := cutModulePath(p.Path); path != "" {
			folders = append(folders, topFolder(path))
		}
	}
	slices.Sort(folders)
	if diff := cmp.Diff(RowmillRules().TopFolders, slices.Compact(folders)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// list asks the go command for every package of the module.
func list(t *testing.T) []Package {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", Module+"/...")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []Package
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		packages = append(packages, Package{Path: p.ImportPath, Imports: p.Imports})
	}
}

// TestCheck checks invented packages against the table.
func TestCheck(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		path    string
		imports []string
		want    []string
	}{
		{name: "down is fine", path: "results", imports: []string{"store", "internal/columnar", ""}},
		{name: "an adapter imports its parent", path: "blob/s3", imports: []string{"blob", "github.com/minio/minio-go"}},
		{name: "a program is one piece", path: "cmd/rowmill", imports: []string{"http", "actors", "cmd/rowmill/config", "github.com/spf13/cobra"}},
		{name: "a package imports its parts", path: "input", imports: []string{"input/csv"}},
		{
			name: "two parts of one package", path: "input/csv", imports: []string{"input/parquet"},
			want: []string{"input/csv imports " + Module + "/input/parquet: within a folder a package may import only its parents, its subfolders and packages on lower steps"},
		},
		{
			name: "an adapter from above", path: "actors", imports: []string{"store/bolt"},
			want: []string{"actors imports " + Module + "/store/bolt: only programs may import adapters"},
		},
		{name: "helpers may import anything", path: "internal/llama", imports: []string{"http", "github.com/gin-gonic/gin"}},
		{
			name: "up", path: "engine", imports: []string{"results"},
			want: []string{"engine imports " + Module + "/results: layer 1 may only import layers below it, not layer 2"},
		},
		{
			name: "neighbours", path: "blob", imports: []string{"store"},
			want: []string{"blob imports " + Module + "/store: layer 1 may only import layers below it, not layer 1"},
		},
		{
			name: "separate folders", path: "http", imports: []string{"actors"},
			want: []string{"http imports " + Module + "/actors: these two folders must not import each other"},
		},
		{
			name: "two adapters", path: "blob/dir", imports: []string{"blob/s3"},
			want: []string{"blob/dir imports " + Module + "/blob/s3: only programs may import adapters"},
		},
		{
			name: "a parent and its adapter", path: "store", imports: []string{"store/bolt"},
			want: []string{"store imports " + Module + "/store/bolt: only programs may import adapters"},
		},
		{
			name: "a library of another", path: "results", imports: []string{"github.com/parquet-go/parquet-go/format"},
			want: []string{"results imports github.com/parquet-go/parquet-go/format: only internal/columnar, bench may import this library"},
		},
		{
			name: "the root package imports nothing", path: "", imports: []string{"internal/shard"},
			want: []string{"the root package imports " + Module + "/internal/shard: the root package imports no other package"},
		},
		{
			name: "helpers stay out of what ships", path: "cmd/rowmill", imports: []string{"internal/llama"},
			want: []string{"cmd/rowmill imports " + Module + "/internal/llama: shipped code must not import test helpers"},
		},
		{
			name: "a name that says nothing", path: "store/util", imports: nil,
			want: []string{`store/util: "util" says nothing about what the package owns`},
		},
		{name: "a folder with its own layer inside another", path: "engine/served", imports: []string{"engine", "engine/catalog"}},
		{
			name: "a folder imports no subfolder on a higher layer", path: "engine", imports: []string{"engine/served"},
			want: []string{"engine imports " + Module + "/engine/served: layer 1 may only import layers below it, not layer 2"},
		},
		{
			name: "a folder nobody placed", path: "misc", imports: nil,
			want: []string{`misc: no layer is set for folder "misc"`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := Package{Path: full(test.path)}
			for _, path := range test.imports {
				if !strings.Contains(path, ".") {
					path = full(path)
				}
				p.Imports = append(p.Imports, path)
			}
			if diff := cmp.Diff(test.want, RowmillRules().Check([]Package{p})); diff != "" {
				t.Errorf("broken rules (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTable checks the table itself: an exception for a folder without a layer would
// have no effect.
func TestTable(t *testing.T) {
	t.Parallel()
	table := RowmillRules()
	var named []string
	for _, allowed := range table.Importers {
		named = append(named, allowed...)
	}
	for _, pair := range table.Separate {
		named = append(named, pair[0], pair[1])
	}
	slices.Sort(named)
	for _, path := range slices.Compact(append(append(named, table.Programs...), table.Adapters...)) {
		if table.layerFolder(path) == "" {
			t.Errorf("the table names %q, which stands on no layer", path)
		}
	}
}

func full(path string) string {
	if path == "" {
		return Module
	}
	return Module + "/" + path
}
