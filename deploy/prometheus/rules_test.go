// Package prometheus_test checks the alert rules: their metrics exist, the runbook has
// them, and Prometheus evaluates them as expected.
package prometheus_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/internal/metricnames"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/promtest"
)

type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	text := must.Get(os.ReadFile("rules.yaml"))(t)
	var file struct{ Groups []struct{ Rules []rule } }
	must.Succeed(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

var series = regexp.MustCompile(`rowmill_\w+`)

// Every metric of an alert exists; every alert has a severity, a summary and a runbook.
func TestRules(t *testing.T) {
	t.Parallel()
	metrics := metricnames.FindRegistered(t, "../..")
	runbook := must.Get(os.ReadFile("../../docs/operations.md"))(t)
	for _, r := range rules(t) {
		for _, name := range series.FindAllString(r.Expr, -1) {
			if histogram, exists := metrics[name]; !exists || histogram {
				t.Errorf("%s asks for %s, which no code registers", r.Alert, name)
			}
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["runbook"] != "docs/operations.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s: annotations %v", r.Alert, r.Annotations)
		}
		if !strings.Contains(string(runbook), "\n### "+r.Alert+"\n") {
			t.Errorf("docs/operations.md does not mention %s", r.Alert)
		}
	}
}

// Each alert fires on its problem, and no alert fires on a healthy cluster.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	tool := promtest.Tool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	text := must.Get(os.ReadFile("rules_test.yaml"))(t)
	for _, r := range rules(t) {
		if !strings.Contains(string(text), "\n- name: "+r.Alert+"\n") || !strings.Contains(string(text), "eval_time: 85m, alertname: "+r.Alert+"}") {
			t.Errorf("rules_test.yaml does not test %s", r.Alert)
		}
	}
}
