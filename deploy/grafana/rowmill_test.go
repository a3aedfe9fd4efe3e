// Package grafana_test holds the dashboard against the code: what it shows
// exists, and what there is is shown.
package grafana_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/rowmill/rowmill/internal/metricnames"
)

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
	metrics := metricnames.Of(t, "../..")
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
