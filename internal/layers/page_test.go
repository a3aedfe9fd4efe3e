package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowmill/rowmill/internal/must"
)

// TestTableNamesWhatThereIs checks that each entry of the table has packages.
func TestTableNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, missing := range RowmillRules().MissingFolders(list(t)) {
		t.Error(missing)
	}
}

// TestPageIsTheTable compares the table with the page that shows it.
func TestPageIsTheTable(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/architecture.md"))(t)
	table := RowmillRules()
	for _, wrong := range table.PageDifferences(string(page)) {
		t.Error("docs/architecture.md: " + wrong)
	}
	// The page names every package below the programs, down to the last part.
	for _, p := range list(t) {
		path, _ := cutModulePath(p.Path)
		if path == "" || table.isHelper(path) || slices.Contains(table.Programs, topFolder(path)) || topFolder(path) == "examples" {
			continue
		}
		if !strings.Contains(string(page), "`"+path+"`") {
			t.Errorf("docs/architecture.md: %s is not on the page", path)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	table := ImportRules{
		Layer: map[string]int{"store": 1, "attic": 3}, Within: map[string]int{"store/bolt": 0, "store/tape": 0},
		Importers: map[string][]string{"lib": {"store", "cellar"}}, Separate: [][2]string{{"store", "ghost"}},
		Adapters: []string{"store/bolt"}, Programs: []string{"cmd"}, Helpers: []string{"internal"},
	}
	packages := []Package{{Path: full("store/bolt")}, {Path: full("cmd/rowmill")}, {Path: full("internals")}, {Path: "example.org/attic"}}
	want := []string{
		`the table names "attic", which holds no package`,
		`the table names "cellar", which holds no package`,
		`the table names "ghost", which holds no package`,
		`the table names "internal", which holds no package`,
		`the table names "store/tape", which holds no package`,
	}
	if diff := cmp.Diff(want, table.MissingFolders(packages)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	table := ImportRules{Layer: map[string]int{"shard": 0, "store": 1, "http": 3}, Within: map[string]int{"http/sdk": 1}}
	for _, test := range []struct {
		name, page string
		want       []string
	}{
		{
			"the same", "| layer | package | owns |\n|---|---|---|\n| 0 | `rowmill` (root) | words of `ghost` |\n| 0 | `shard` | |\n| 1 | `store` | `store/bolt` |\n| 3 | `http` | |\n" +
				"\n| step | part | owns |\n|---|---|---|\n| 1 | `http/sdk` | |\n",
			nil,
		},
		{
			"all wrong", "| 0 | `shard`, `attic` | |\n| 2 | `store` | |\n| 3 | `http` | |\n| 3 | `http` | |\n",
			[]string{
				`the page places "attic", the table does not`, `the page places "store" on 2, the table on 1`,
				`the page places "http" twice`, `the table places "http/sdk", the page does not`,
			},
		},
		{"empty", "", []string{
			`the table places "http", the page does not`, `the table places "http/sdk", the page does not`,
			`the table places "shard", the page does not`, `the table places "store", the page does not`,
		}},
	} {
		if diff := cmp.Diff(test.want, table.PageDifferences(test.page)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestContributingNamesWhatThereIs checks that every path and every make target in the
// page for contributors exists.
func TestContributingNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../../docs/contributing.md"))(t)
	makefile := must.Get(os.ReadFile("../../Makefile"))(t)
	paths := 0
	for _, match := range quoted.FindAllStringSubmatch(string(page), -1) {
		name := match[1]
		if target, is := strings.CutPrefix(name, "make "); is {
			target, _, _ = strings.Cut(target, " ")
			if !strings.Contains(string(makefile), "\n"+target+":") {
				t.Errorf("docs/contributing.md names make %s, which there is not", target)
			}
			continue
		}
		if strings.ContainsAny(name, " …") || !strings.ContainsAny(name, "/.") || name == "bin/rowmill" || name == "store.Store" || name == "testing/synctest" {
			continue
		}
		paths++
		if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
			t.Errorf("docs/contributing.md: %v", err)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(page), -1) {
		if _, err := os.Stat(filepath.Join("../../docs", link[1])); err != nil {
			t.Errorf("docs/contributing.md links to what there is not: %v", err)
		}
	}
	if paths < 30 {
		t.Errorf("%d paths were found on the page; the others were not looked for", paths)
	}
}
