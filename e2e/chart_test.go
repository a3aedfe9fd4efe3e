package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/redistest"
	"github.com/rowmill/rowmill/internal/s3test"
	"github.com/rowmill/rowmill/internal/wait"
)

// endsAfter is how long after jobs.drain_timeout the watchdog ends a process.
const endsAfter = 10 * time.Second

// A manifest holds the fields of the chart's manifests that these tests read.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Template struct{ Spec podSpec }
		podSpec  `yaml:",inline"`
		Ports    []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
			Protocol   string
		}
		Ingress []struct{ Ports []struct{ Port int } }
		Rules   []struct {
			HTTP struct {
				Paths []struct {
					Path     string
					PathType string `yaml:"pathType"`
				}
			}
		}
	}
}

type podSpec struct {
	Grace      int         `yaml:"terminationGracePeriodSeconds"`
	Containers []container // of a StatefulSet's pods, or of the pod of `helm test`
	Volumes    []struct {
		Name      string
		Projected struct {
			Sources []struct{ Secret secretFiles }
		}
		Secret secretFiles
	}
}

type secretFiles struct{ Items []struct{ Key, Path string } }

type container struct {
	Args []string
	Env  []struct{ Name, Value string }

	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
		Protocol      string
	}
	Startup   probe `yaml:"startupProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTP struct{ Path, Port string } `yaml:"httpGet"`
}

// chart reads the manifests that the chart makes from a form. The tests of deploy/helm
// check that the chart makes them.
func chart(t *testing.T, file string) (all []manifest) {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	for documents := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var raw yaml.Node
		if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var head struct{ Kind string }
		must.Succeed(t, raw.Decode(&head))
		m := manifest{Kind: head.Kind}
		switch head.Kind {
		case "StatefulSet", "Service", "ConfigMap", "NetworkPolicy", "Ingress", "Pod":
			if err := raw.Decode(&m); err != nil {
				t.Fatalf("%s: %s: %v", file, head.Kind, err)
			}
		}
		all = append(all, m)
	}
}

// only returns the only manifest of a kind.
func only(t *testing.T, all []manifest, kind string) manifest {
	t.Helper()
	for _, m := range all {
		if m.Kind == kind && (kind != "ConfigMap" || m.Data["rowmill.yaml"] != "") {
			return m
		}
	}
	t.Fatalf("no %s", kind)
	return manifest{}
}

// forms returns the manifests of all forms, by name.
func forms(t *testing.T) map[string][]manifest {
	t.Helper()
	files, err := filepath.Glob("../deploy/helm/testdata/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("the forms are %q, error %v", files, err)
	}
	found := make(map[string][]manifest)
	for _, file := range files {
		found[strings.TrimSuffix(filepath.Base(file), ".yaml")] = chart(t, file)
	}
	return found
}

// A pod is a folder with the files of a pod's volumes.
type pod struct {
	dir, ip, name string
	values        map[string]string // of secrets, by the file's name
	replaced      []string          // replacements for values that differ on this machine: old, new, …
}

// environment returns the environment of a container, with its files in the pod's
// folder.
func (p *pod) environment(t *testing.T, c container, config string) []string {
	t.Helper()
	paths := []string{"$(POD_IP)", p.ip, "$(POD_NAME)", p.name}
	for _, mount := range c.Mounts {
		here := filepath.Join(p.dir, mount.Path)
		must.Succeed(t, os.MkdirAll(here, 0o700))
		if strings.HasPrefix(mount.Path, "/etc/") || mount.Path == "/data" {
			paths = append(paths, mount.Path, here)
		}
		if mount.Name == "config" {
			p.write(t, filepath.Join(here, "rowmill.yaml"), config)
		}
	}
	replace := strings.NewReplacer(append(slices.Clone(p.replaced), paths...)...)
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for _, e := range c.Env {
		if e.Value == "" {
			e.Value = "taken from elsewhere"
		}
		environ = append(environ, e.Name+"="+replace.Replace(e.Value))
	}
	return environ
}

func (p *pod) write(t *testing.T, file, text string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
}

// fill writes the secrets of a pod's volumes.
func (p *pod) fill(t *testing.T, spec podSpec) {
	t.Helper()
	for _, v := range spec.Volumes {
		items := v.Secret.Items
		for _, source := range v.Projected.Sources {
			items = append(items, source.Secret.Items...)
		}
		for _, item := range items {
			value, known := p.values[item.Path]
			if !known {
				t.Errorf("the secret %s is for nothing that is known", item.Path)
			}
			p.write(t, filepath.Join(p.dir, "/etc/rowmill/secrets", item.Path), value)
		}
	}
}

// secrets returns a value for each secret that the chart mounts.
func secrets() map[string]string {
	return map[string]string{
		"API_KEY": apiKey, "STORE_URL": "redis://:password@redis:6379/0",
		"CLUSTER_KEY":        "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
		"OBJECTS_ACCESS_KEY": "access", "OBJECTS_SECRET_KEY": "secret",
		"HTTP_SIGNING_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", "LOG_AUDIT_WEBHOOK_SECRET": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
	}
}

// TestChartSettings checks that the program accepts the settings of every form of the
// chart, that it listens on the chart's ports, and that it ends before Kubernetes kills
// it.
func TestChartSettings(t *testing.T) {
	t.Parallel()
	for form, all := range forms(t) {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			spec := only(t, all, "StatefulSet").Spec.Template.Spec
			node := spec.Containers[0]
			p := &pod{dir: t.TempDir(), ip: "10.1.2.3", name: "rowmill-0", values: secrets()}
			p.fill(t, spec)
			environ := p.environment(t, node, only(t, all, "ConfigMap").Data["rowmill.yaml"])
			var set struct {
				HTTP struct{ Listen string }
				Jobs struct {
					DrainTimeout time.Duration `yaml:"drain_timeout"`
				}
				Cluster struct {
					Listen     string
					PeerListen string `yaml:"peer_listen"`
				}
			}
			printed := exec.CommandContext(t.Context(), binary, append([]string{"config", "print"}, node.Args[1:]...)...)
			printed.Env = environ
			var failure bytes.Buffer
			printed.Stderr = &failure
			out, err := printed.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, &failure)
			}
			must.Succeed(t, yaml.Unmarshal(out, &set))
			if node.Args[0] != "serve" {
				t.Errorf("it runs %q", node.Args)
			}

			grace, before := time.Duration(spec.Grace)*time.Second, time.Duration(node.Lifecycle.PreStop.Sleep.Seconds)*time.Second
			if before == 0 || set.Jobs.DrainTimeout == 0 || grace < before+set.Jobs.DrainTimeout+endsAfter {
				t.Errorf("a pod has %v to end: %v before it is told, %v to drain, and %v more", grace, before, set.Jobs.DrainTimeout, endsAfter)
			}

			listens := []string{set.HTTP.Listen}
			if set.Cluster.Listen != "" {
				listens = append(listens, set.Cluster.Listen, set.Cluster.Listen+"/UDP", set.Cluster.PeerListen)
			}
			var want, open []string // ports
			for _, address := range listens {
				_, port, _ := strings.Cut(address[strings.LastIndexByte(address, ']')+1:], ":")
				want = append(want, port)
			}
			named := map[string]int{}
			for _, port := range node.Ports {
				named[port.Name] = port.ContainerPort
				open = append(open, strings.TrimSuffix(fmt.Sprint(port.ContainerPort, "/", port.Protocol), "/"))
			}
			slices.Sort(want)
			slices.Sort(open)
			if !slices.Equal(want, open) {
				t.Errorf("the node listens at %q, the container is open at %q", want, open)
			}
			for _, probe := range []probe{node.Startup, node.Liveness, node.Readiness} {
				if named[probe.HTTP.Port] == 0 {
					t.Errorf("a probe asks at %q", probe.HTTP.Port)
				}
			}
			for _, m := range all {
				for _, port := range m.Spec.Ports {
					led := named[port.TargetPort] != 0
					if port.TargetPort == "" {
						led = slices.Contains(open, strings.TrimSuffix(fmt.Sprint(port.Port, "/", port.Protocol), "/"))
					}
					if m.Kind == "Service" && !led {
						t.Errorf("a service leads to %+v", port)
					}
				}
				for _, rule := range m.Spec.Ingress {
					for _, port := range rule.Ports {
						if !slices.Contains(open, fmt.Sprint(port.Port)) {
							t.Errorf("the network policy opens %d", port.Port)
						}
					}
				}
			}
		})
	}
}

// TestChartIngress checks that outside clients reach all routes that require a key or a
// signature, and no other routes.
func TestChartIngress(t *testing.T) {
	t.Parallel()
	text := must.Get(os.ReadFile("../http/openapi.yaml"))(t)
	var document struct{ Paths map[string]any }
	must.Succeed(t, yaml.Unmarshal(text, &document))
	paths := only(t, forms(t)["single"], "Ingress").Spec.Rules[0].HTTP.Paths
	for route := range document.Paths {
		reached := false
		for _, p := range paths {
			reached = reached || route == p.Path || p.PathType == "Prefix" && strings.HasPrefix(route, strings.TrimSuffix(p.Path, "/")+"/")
		}
		closed := slices.Contains([]string{"/metrics", "/livez", "/readyz", "/version"}, route)
		if reached == closed {
			t.Errorf("%s: reached is %v", route, reached)
		}
	}
}

// TestChartImage checks that a pod has a volume at each path that the image writes to,
// and runs as the owner of these paths.
func TestChartImage(t *testing.T) {
	t.Parallel()
	dockerfile := must.Get(os.ReadFile("../deploy/Dockerfile"))(t)
	rendered := must.Get(os.ReadFile("../deploy/helm/testdata/separate.yaml"))(t)
	for of, at := range map[string]string{
		`(?m)^ENV ROWMILL_DATA=(\S+) TMPDIR=(\S+) HOME=(\S+)$`: `{name: data, mountPath: (\S+)}`,
		`(?m)^COPY --from=build --chown=(\d+):\d+ /out/data`:   `runAsUser: (\d+)`,
	} {
		image, pod := regexp.MustCompile(of).FindStringSubmatch(string(dockerfile)), regexp.MustCompile(at).FindStringSubmatch(string(rendered))
		if image == nil || pod == nil || slices.ContainsFunc(image[1:], func(s string) bool { return s != pod[1] }) {
			t.Errorf("the image has %q, the pod %q", image, pod)
		}
	}
}

// serve runs the node of a pod as its container does, until the end of the test or a
// call of end. It returns the environment for commands in the container.
func (p *pod) serve(t *testing.T, all []manifest, listen string, args ...string) (environ []string, end func() error) {
	t.Helper()
	spec := only(t, all, "StatefulSet").Spec.Template.Spec
	c := spec.Containers[0]
	p.fill(t, spec)
	environ = append(p.environment(t, c, only(t, all, "ConfigMap").Data["rowmill.yaml"]), "ROWMILL_HTTP_LISTEN="+listen, "ROWMILL_SERVER=http://"+listen)
	node := exec.Command(binary, append(c.Args, args...)...)
	node.Env = environ // for equal names, the last value counts
	var log bytes.Buffer
	node.Stderr = &log
	must.Succeed(t, node.Start())
	ended := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		ended <- node.Wait()
		close(over)
	}()
	t.Cleanup(func() {
		_ = node.Process.Kill() // it may have ended already
		<-over
		if t.Failed() {
			t.Logf("%s says:\n%s", p.name, &log)
		}
	})
	for _, probe := range []probe{c.Startup, c.Liveness, c.Readiness} {
		wait.Until(t, func() error {
			select {
			case end := <-ended:
				t.Fatalf("the node has ended: %v", end)
			default:
			}
			return get(t, "http://"+listen+probe.HTTP.Path)
		})
	}
	return environ, func() error {
		if err := node.Process.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		return <-ended
	}
}

func get(t *testing.T, url string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// say runs a command of the program in a pod.
func say(t *testing.T, environ []string, input string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env, cmd.Stdin = environ, strings.NewReader(input)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("rowmill %s: %v\n%s%s", strings.Join(args, " "), err, out, &failure)
	}
	return string(out)
}

// twoRows runs the job of docs/kubernetes.md.
func twoRows(t *testing.T, environ []string) {
	t.Helper()
	out := say(t, environ, "What is a mill?\nWhat is a row?\n", "jobs", "submit", "-", "--format", "json", "--output", "-")
	var results struct{ Outputs []string }
	if err := json.Unmarshal([]byte(out), &results); err != nil || len(results.Outputs) != 2 {
		t.Errorf("the job's rows are %q, error %v", out, err)
	}
}

// TestChartNode runs the node of the first form: its probes answer, a job runs as
// docs/kubernetes.md says, the pod of `helm test` succeeds, and the node ends after
// SIGTERM.
func TestChartNode(t *testing.T) {
	t.Parallel()
	all := forms(t)["try"]
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	listen := listener.Addr().String()
	listener.Close()
	p := &pod{dir: t.TempDir(), ip: "127.0.0.1", name: "rowmill-0", values: secrets()}
	environ, end := p.serve(t, all, listen)
	if err := get(t, "http://"+listen+"/metrics"); err != nil {
		t.Error(err)
	}
	twoRows(t, environ)

	doctor := only(t, all, "Pod").Spec.podSpec
	asks := &pod{dir: t.TempDir(), values: secrets(), replaced: []string{"http://rowmill:8088", "http://" + listen}}
	asks.fill(t, doctor)
	out := say(t, asks.environment(t, doctor.Containers[0], ""), "", doctor.Containers[0].Args...)
	if !strings.Contains(out, "1 nodes") {
		t.Errorf("the doctor says %s", out)
	}

	if err := end(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestChartCluster runs two nodes with inference servers as sidecars, like the chart,
// with Redis, a bucket and certificates. The nodes find each other and run a job on
// their sidecars.
func TestChartCluster(t *testing.T) {
	t.Parallel()
	all := forms(t)["sidecar"]
	redis, bucket := redistest.Start(t), s3test.Start(t)
	authority := must.Get(certtest.NewAuthority())(t)
	var environ []string
	for i, ip := range []string{"127.83.0.1", "127.83.0.2"} {
		server := startSimulated(t)
		values := secrets()
		values["STORE_URL"] = redis.URL()
		p := &pod{dir: t.TempDir(), ip: ip, name: fmt.Sprint("rowmill-", i), values: values, replaced: []string{
			"http://127.0.0.1:8000", server.url, "rowmill-nodes:7946", "127.83.0.1:7946",
		}}
		files := must.Get(authority.Issue(t.TempDir(), "rowmill"))(t)
		for name, file := range map[string]string{"tls.crt": files.Cert, "tls.key": files.Key, "ca.crt": files.CA} {
			text := must.Get(os.ReadFile(file))(t)
			p.write(t, filepath.Join(p.dir, "/etc/rowmill/tls", name), string(text))
		}
		environ, _ = p.serve(t, all, ip+":8088", "--set", "objects.url=s3://"+bucket.Bucket, "--set", "objects.endpoint="+bucket.Endpoint,
			"--set", "objects.region="+s3test.Region, "--set", "objects.access_key="+bucket.AccessKey, "--set", "objects.secret_key="+bucket.SecretKey)
	}
	wait.For(t, "the nodes have found each other", func() bool {
		list := say(t, environ, "", "nodes", "list")
		return strings.Contains(list, "http://127.83.0.1:8088") && strings.Contains(list, "http://127.83.0.2:8088")
	})
	twoRows(t, environ)
}
