// Package grafana_test compares the dashboard with the code: every metric on the
// dashboard exists, and every metric is on the dashboard.
package grafana_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/metricnames"
	"github.com/rowmill/rowmill/internal/must"
)

// A board is the part of a dashboard that the tests read.
type board struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		Datasource               struct{ UID string }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ RefID, Expr, LegendFormat string }
	}
}

func dashboard(t *testing.T) (b board) {
	t.Helper()
	doc := must.Get(os.ReadFile("rowmill.json"))(t)
	must.Succeed(t, json.Unmarshal(doc, &b))
	return b
}

var (
	series    = regexp.MustCompile(`rowmill_\w+`)
	component = regexp.MustCompile(`_(bucket|sum|count)$`) // the series of a histogram
	selected  = regexp.MustCompile(`\b(rowmill|process)_\w+`)
	counter   = regexp.MustCompile(`.{0,9}\b(rowmill|process)_\w+_(total|bucket|count|sum)\b`)
	window    = regexp.MustCompile(`\[([^]]+)\]`)
	chosen    = regexp.MustCompile(`\b(rowmill|process)_\w+\{job=~"\$job",instance=~"\$instance"[,}]`)
)

// Every metric of a panel exists; every metric of a node is on a panel.
func TestDashboardShowsTheMetrics(t *testing.T) {
	t.Parallel()
	metrics := metricnames.FindRegistered(t, "../..")
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

// Every query uses the selected jobs and nodes.
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

// Each panel has its own id and title, a description, a place, a unit and a legend.
// Counters are shown as rates, over a range with several scrapes.
func TestDashboardPanels(t *testing.T) {
	t.Parallel()
	ids, taken := make(map[int]string), make(map[[2]int]string)
	titles, row := make(map[string]bool), ""
	for _, panel := range dashboard(t).Panels {
		if other, twice := ids[panel.ID]; twice {
			t.Errorf("panels %q and %q have one id", panel.Title, other)
		}
		ids[panel.ID] = panel.Title
		at := panel.GridPos
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q or out of the board", panel.Title, other)
				}
				taken[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type == "row" {
			row = panel.Title
			continue
		}
		if panel.Title == "" || titles[row+panel.Title] || panel.Description == "" || panel.FieldConfig.Defaults.Unit == "" || panel.Datasource.UID != "${datasource}" || at.W*at.H == 0 {
			t.Errorf("panel %q of %q lacks a unique title, a description, a unit, the chosen data source or a place", panel.Title, row)
		}
		titles[row+panel.Title] = true
		refs := make(map[string]bool)
		for _, target := range panel.Targets {
			if target.RefID == "" || refs[target.RefID] || target.LegendFormat == "" {
				t.Errorf("a query of panel %q lacks a unique name or a legend: %s", panel.Title, target.Expr)
			}
			refs[target.RefID] = true
			for _, use := range counter.FindAllString(target.Expr, -1) {
				if !strings.Contains(use, "rate(") && !strings.Contains(use, "increase(") {
					t.Errorf("panel %q shows a counter, not its rate: %s", panel.Title, target.Expr)
				}
			}
			for _, m := range window.FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains([]string{"$__rate_interval", "5m", "1h"}, m[1]) {
					t.Errorf("panel %q has a range of %s: %s", panel.Title, m[1], target.Expr)
				}
			}
		}
	}
}
