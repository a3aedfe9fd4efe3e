// Package metricnames finds the names of a node's metrics in the source code, for tests of
// pages that name metrics.
package metricnames

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// excluded lists folders with metrics that a node does not have: for example, the
// simulated server serves its own metrics.
var excluded = []string{"engine/sim", "bench", "e2e"}

// FindRegistered returns the names of the metrics that the code below a folder registers. The value
// is true for a histogram. It reads the names in options and descriptions of package
// prometheus.
func FindRegistered(t testing.TB, root string) map[string]bool {
	t.Helper()
	found := make(map[string]bool)
	must.Succeed(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			for _, folder := range excluded {
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
			if name, histogram := metricName(node); name != "" {
				found[name] = histogram
			}
			return true
		})
		return nil
	}))
	return found
}

// metricName returns the name in prometheus.…Opts{Name: "…"} or prometheus.NewDesc("…"), or
// "" for any other node.
func metricName(node ast.Node) (name string, histogram bool) {
	switch n := node.(type) {
	case *ast.CompositeLit:
		kind := prometheusName(n.Type)
		for _, element := range n.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && strings.HasSuffix(kind, "Opts") {
				if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Name" {
					return stringLiteral(pair.Value), kind == "HistogramOpts"
				}
			}
		}
	case *ast.CallExpr:
		if prometheusName(n.Fun) == "NewDesc" {
			return stringLiteral(n.Args[0]), false
		}
	}
	return "", false
}

// prometheusName returns the name X of an expression prometheus.X, or "" for any other
// expression.
func prometheusName(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "prometheus" {
			return s.Sel.Name
		}
	}
	return ""
}

// stringLiteral returns the value of a string literal, or "" for any other expression.
func stringLiteral(e ast.Expr) string {
	if literal, ok := e.(*ast.BasicLit); ok {
		if value, err := strconv.Unquote(literal.Value); err == nil {
			return value
		}
	}
	return ""
}
