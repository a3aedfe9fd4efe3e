// Package helm_test renders the chart in every documented form, compares the output
// with reviewed files, and validates it as Kubernetes would. Tests in e2e check the
// output against the program.
package helm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/golden"
	"github.com/rowmill/rowmill/internal/must"
)

// newest is the newest version of Kubernetes with installed schemas; Chart.yaml has the
// oldest.
const newest = "1.37.0"

// tools holds the programs that `.ci/tools helm` installs.
type tools struct {
	helm, admit     string // programs
	python, schemas string // a Python with kubernetes-validate, and a folder of CRDs
}

func helmTools(t *testing.T) tools {
	t.Helper()
	paths := strings.Fields(os.Getenv("ROWMILL_HELM"))
	if len(paths) != 4 {
		t.Skip("SKIPPED, NOT TESTED: the chart is rendered by `make chart`")
	}
	for i, path := range paths {
		if !filepath.IsAbs(path) {
			paths[i] = filepath.Join("../..", path)
		}
	}
	return tools{helm: paths[0], admit: paths[1], python: paths[2], schemas: paths[3]}
}

// runCheck runs a check on manifests. is reports whether the check refuses them.
func runCheck(t *testing.T, manifests, check string, args ...string) (complaint string, is bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), check, args...)
	cmd.Stdin = strings.NewReader(manifests)
	out, err := cmd.CombinedOutput()
	if text := string(out); strings.Contains(text, "Traceback") || strings.Contains(text, "panic:") || err != nil && text == "" {
		t.Fatalf("%s: %v\n%s", check, err, text)
	}
	return string(out), err != nil
}

// forms returns the values files of docs/kubernetes.md by name.
func forms(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("the forms are %q, error %v", files, err)
	}
	found := make(map[string]string)
	for _, file := range files {
		found[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}
	return found
}

// render returns the manifests, or helm's error.
func render(t *testing.T, helm string, args ...string) (manifests, complaint string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), helm, append([]string{"template", "rowmill", "rowmill"}, args...)...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	return out.String(), failure.String(), err == nil
}

func read(t *testing.T, file string) string {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	return string(text)
}

// indented returns a text indented by a number of columns, as in YAML.
func indented(text string, by int) string {
	space := strings.Repeat(" ", by)
	return space + strings.ReplaceAll(text, "\n", "\n"+space)
}

// TestForms renders each form. The output equals the reviewed file, and every version
// of Kubernetes from the oldest to the newest accepts it.
func TestForms(t *testing.T) {
	t.Parallel()
	with := helmTools(t)
	oldest := regexp.MustCompile(`(?m)^kubeVersion: ">=([0-9.]+)-0"$`).FindStringSubmatch(read(t, "rowmill/Chart.yaml"))
	if oldest == nil {
		t.Fatal("Chart.yaml does not say from which version of Kubernetes on it works")
	}
	for form, file := range forms(t) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			if out, err := exec.CommandContext(t.Context(), with.helm, "lint", "--strict", "rowmill", "--values", file).CombinedOutput(); err != nil {
				t.Errorf("helm lint: %v\n%s", err, out)
			}
			manifests, complaint, ok := render(t, with.helm, "--values", file)
			if !ok {
				t.Fatal(complaint)
			}
			if out, wrong := runCheck(t, manifests, with.python, "testdata/schemas.py", with.schemas, oldest[1], newest); wrong {
				t.Errorf("a version of Kubernetes does not know it: %s", out)
			}
			rules := []string{"-restricted"}
			if strings.Contains(manifests, "- name: inference\n") { // its image is not ours, so our rules for images do not apply
				rules = nil
			}
			if out, wrong := runCheck(t, manifests, with.admit, rules...); wrong {
				t.Errorf("Kubernetes would refuse it: %s", out)
			}
			// The manifests contain the rules and the dashboard unchanged.
			short := manifests
			for name, by := range map[string]int{"../prometheus/rules.yaml": 2, "../grafana/rowmill.json": 4} {
				short = strings.Replace(short, indented(read(t, name), by), indented("(all of "+strings.TrimPrefix(name, "../")+")", by), 1)
			}
			golden.CheckFile(t, filepath.Join("testdata", form+".yaml"), short)
		})
	}
}

// The checks of TestForms find errors.
func TestChecks_FindErrors(t *testing.T) {
	t.Parallel()
	with := helmTools(t)
	for name, test := range map[string]struct {
		manifest, says string
		rule           bool // found by Kubernetes' code, not by a schema
	}{
		"an unknown field": {"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 1}], selectors: {}}}", "selectors", false},
		"a field of the wrong type": {
			"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {maxUnavailable: true}}", "maxUnavailable", false,
		},
		"a field that is missing": {"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {template: {}}}", "selector", false},
		"an unknown kind":         {"{apiVersion: apps/v2, kind: StatefulSet, metadata: {name: a}}", "StatefulSet", false},
		"a trigger without a type": {
			"{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: a}, spec: {scaleTargetRef: {name: a}, triggers: [{metadata: {}}]}}", "type", false,
		},
		"a field of a trigger": {
			"{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: a}, spec: {scaleTargetRef: {name: a}, triggers: [{type: a, metadata: {}, query: a}]}}", "query", false,
		},
		"a monitor's interval": {
			"{apiVersion: monitoring.coreos.com/v1, kind: ServiceMonitor, metadata: {name: a}, spec: {selector: {}, endpoints: [{interval: often}]}}", "often", false,
		},
		"a rule without expression": {
			"{apiVersion: monitoring.coreos.com/v1, kind: PrometheusRule, metadata: {name: a}, spec: {groups: [{name: a, rules: [{alert: A}]}]}}", "expr", false,
		},
		"no schema for nothing": {"", "no manifest", false},
		"no rule for nothing":   {"", "no manifest", true},
		"an invalid name":       {"{apiVersion: v1, kind: ConfigMap, metadata: {name: A_b}}", "metadata.name", true},
		"a mount without a volume": {
			"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a, volumeMounts: [{name: b, mountPath: /b}]}]}}", "volumeMounts[0].name", true,
		},
		"a selector that does not match": {
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, " +
				"template: {metadata: {labels: {a: c}}, spec: {containers: [{name: a, image: a}]}}}}", "does not match", true,
		},
		"a pod with too many rights": {"{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}", "runAsNonRoot", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check, args := with.python, []string{"testdata/schemas.py", with.schemas, newest}
			if test.rule {
				check, args = with.admit, []string{"-restricted"}
			}
			if out, wrong := runCheck(t, test.manifest, check, args...); !wrong || !strings.Contains(out, test.says) {
				t.Errorf("refused: %v, and it says %s", wrong, out)
			}
		})
	}
}

// Values that cannot work are refused with a remedy.
func TestRefusals(t *testing.T) {
	t.Parallel()
	helm := helmTools(t).helm
	for _, test := range []struct{ form, set, says string }{
		{"separate", "replcas=3", "replcas"},
		{"separate", "mode=both", "mode"},
		{"separate", "inference.container.name=vllm", "inference"},
		{"separate", "image.repository=", "image.repository: name where"},
		{"separate", "secrets.apiKey.name=", "secrets.apiKey.name: name a Secret"},
		{"separate", "secrets.storeURL.name=", "secrets.storeURL.name: nodes of a cluster"},
		{"separate", "tls.name=", "tls.insecure: true"},
		{"separate", "secrets.gossipKey.name=", "tls.insecure: true"},
		{"separate", "config.engines=null", "config.engines: name inference servers"},
		{"separate", "simulate=true", "simulate: made-up and real"},
		{"separate", "inference.container.image=vllm", "config.engines: the node uses"},
		{"separate", "config.engines[0].api_key=secret", "api_key_env"},
		{"separate", "config.jobs.drain_timeout=5m", "drainSeconds"},
		{"separate", "config.log.audit_webhook_secret=whsec_c2VjcmV0", "secrets.auditWebhookSecret"},
		{"separate", "config.store.url=redis://secret", "secrets.storeURL"},
		{"separate", "config.cluster.listen=0.0.0.0:1", "config.cluster: set role"},
		{"separate", "config.http.listen=:1", "config.http.listen: the chart sets it"},
		{"separate", "autoscaling.kind=keda", "autoscaling.prometheus: KEDA asks"},
		{"watched", "autoscaling.min=0", "autoscaling.min: a HorizontalPodAutoscaler"},
		{"single", "autoscaling.kind=hpa", "mode: cluster has more nodes"},
		{"single", "role=api", "mode: cluster has roles"},
		{"single", "ingress.host=", "ingress.host: name the host"},
	} {
		t.Run(test.set, func(t *testing.T) {
			t.Parallel()
			if _, complaint, ok := render(t, helm, "--values", "examples/"+test.form+".yaml", "--set", test.set); ok || !strings.Contains(complaint, test.says) {
				t.Errorf("rendered: %v, and helm says %s", ok, complaint)
			}
		})
	}
}

// helm accepts the commands of docs/kubernetes.md, and the page mentions every form.
func TestCommands(t *testing.T) {
	t.Parallel()
	helm := helmTools(t).helm
	page := read(t, "../../docs/kubernetes.md")
	commands := regexp.MustCompile(`(?m)^helm install rowmill rowmill-VERSION.tgz (.*)$`).FindAllStringSubmatch(page, -1)
	if len(commands) == 0 {
		t.Fatal("the page installs nothing")
	}
	for _, command := range commands {
		if _, complaint, ok := render(t, helm, strings.Fields(strings.Replace(command[1], "--wait", "", 1))...); !ok {
			t.Errorf("%s: %s", command[0], complaint)
		}
	}
	for form := range forms(t) {
		if !strings.Contains(page, "["+form+".yaml](../deploy/helm/examples/"+form+".yaml)") {
			t.Errorf("the page does not mention %s.yaml", form)
		}
	}
}

// Releases with different names have different resource names, and form one cluster if
// configured so.
func TestNames(t *testing.T) {
	t.Parallel()
	helm := helmTools(t).helm
	cmd := exec.CommandContext(t.Context(), helm, "template", "large", "rowmill", "--values", "examples/engines.yaml", "--namespace", "mills")
	out := must.Get(cmd.Output())(t)
	for _, want := range []string{
		"\n  name: large-rowmill\n", "\n  serviceName: large-rowmill-nodes\n", `value: "large-rowmill-nodes:7946"`,
		"\n  selector:\n    app.kubernetes.io/name: rowmill\n    app.kubernetes.io/part-of: rowmill\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
}
