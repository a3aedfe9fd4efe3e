// Package grafana_test holds the dashboard against the code: what it shows
// exists, and what there is is shown.
package grafana_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// elsewhere are folders whose metrics are not a node's: the simulated server
// has a page of its own.
var elsewhere = []string{"sim", "bench", "e2e", "internal"}

// registered returns the metrics that the code makes and whether each is a
// histogram: the names in the options of prometheus and in its descriptions.
func registered(t *testing.T) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			for _, folder := range elsewhere {
				if path == filepath.Join(root, folder) {
					return filepath.SkipDir
				}
			}
			if strings.HasPrefix(entry.Name(), ".") && path != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if name, histogram := metric(node); name != "" {
				found[name] = histogram
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// metric is the name in prometheus.…Opts{Name: "…"} or prometheus.NewDesc("…").
func metric(node ast.Node) (name string, histogram bool) {
	switch n := node.(type) {
	case *ast.CompositeLit:
		kind := ofPrometheus(n.Type)
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && strings.HasSuffix(kind, "Opts") {
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Name" {
					return text(pair.Value), kind == "HistogramOpts"
				}
			}
		}
	case *ast.CallExpr:
		if ofPrometheus(n.Fun) == "NewDesc" {
			return text(n.Args[0]), false
		}
	}
	return "", false
}

// ofPrometheus is X in prometheus.X.
func ofPrometheus(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "prometheus" {
			return s.Sel.Name
		}
	}
	return ""
}

// text is the value of a string literal.
func text(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		if value, err := strconv.Unquote(literal.Value); err == nil {
			return value
		}
	}
	return ""
}

// A board is what the test reads of a dashboard.
type board struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []struct {
		Type, Title string
		Targets     []struct{ Expr, LegendFormat string }
	}
}

func dashboard(t *testing.T) (b board) {
	t.Helper()
	doc, err := os.ReadFile("rowmill.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	series    = regexp.MustCompile(`rowmill_\w+`)
	component = regexp.MustCompile(`_(bucket|sum|count)$`) // of a histogram
	selected  = regexp.MustCompile(`\b(rowmill|process)_\w+`)
	chosen    = regexp.MustCompile(`\b(rowmill|process)_\w+\{job=~"\$job",instance=~"\$instance"[,}]`)
)

// What a panel asks for exists; every metric of a node is on a panel.
func TestDashboardShowsTheMetrics(t *testing.T) {
	t.Parallel()
	metrics := registered(t)
	shown := make(map[string]bool)
	for _, panel := range dashboard(t).Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			for _, name := range series.FindAllString(target.Expr, -1) {
				bare := component.ReplaceAllString(name, "")
				histogram, exists := metrics[bare]
				switch {
				case !exists:
					t.Errorf("panel %q asks for %s, which no code registers", panel.Title, name)
				case histogram != (bare != name):
					t.Errorf("panel %q asks for %s: a histogram has _bucket, _sum and _count, other metrics have not", panel.Title, name)
				}
				shown[bare] = true
			}
		}
	}
	for name := range metrics {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// Every query keeps to the jobs and nodes that are chosen above the panels.
func TestDashboardHasNodeVariable(t *testing.T) {
	t.Parallel()
	b := dashboard(t)
	variables := make(map[string]bool)
	for _, v := range b.Templating.List {
		variables[v.Name] = true
	}
	for _, name := range []string{"datasource", "job", "instance"} {
		if !variables[name] {
			t.Errorf("the dashboard has no variable %s", name)
		}
	}
	for _, panel := range b.Panels {
		for _, target := range panel.Targets {
			if len(chosen.FindAllString(target.Expr, -1)) != len(selected.FindAllString(target.Expr, -1)) {
				t.Errorf("panel %q asks for all nodes: %s", panel.Title, target.Expr)
			}
		}
	}
}
