package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/repo"
)

// A collector is the OpenTelemetry collector, which writes received spans to a file.
type collector struct {
	process
	url  string
	file string
}

// collectorModule is the module that internal/otelcol pins.
const collectorModule = "go.opentelemetry.io/collector/otelcol"

// collectorBinary returns the program. If the program is missing, the test is skipped.
func collectorBinary(t *testing.T) string {
	t.Helper()
	pins := must.Get(os.ReadFile(repo.Path("internal", "otelcol", "go.mod")))(t)
	for line := range strings.Lines(string(pins)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == collectorModule {
			path := repo.Path("bin", "tools", "otelcol-"+fields[1])
			if _, err := os.Stat(path); err != nil {
				unable(t, "no collector on this machine: run `.ci/tools otelcol`")
			}
			return path
		}
	}
	t.Fatalf("internal/otelcol/go.mod does not name %s", collectorModule)
	return ""
}

func startCollector(t *testing.T, c *Cluster) *collector {
	t.Helper()
	program := collectorBinary(t)
	h := must.Get(newHost(t.Context(), nil, ""))(t)
	address := must.Get(h.listen(t.Context(), 0))(t)
	col := &collector{url: "http://" + address, file: filepath.Join(c.dir, "spans.jsonl")}
	config := filepath.Join(c.dir, "collector.yaml")
	text := fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {lines: {path: %q}}
service: {pipelines: {traces: {receivers: [otlp], exporters: [lines]}}}
`, address, col.file)
	must.Succeed(t, os.WriteFile(config, []byte(text), 0o600))
	col.name, col.log = "collector", filepath.Join(c.dir, "collector.log")
	col.command = func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, program, "--config", "file:"+config)
	}
	col.begin(t, c)
	t.Cleanup(col.kill)
	return col
}

// begin starts the collector and waits until it listens.
func (col *collector) begin(t *testing.T, c *Cluster) {
	t.Helper()
	must.Succeed(t, col.start(t.Context()))
	must.Succeed(t, col.await(t.Context(), "listens", func(ctx context.Context) error {
		_, err := c.client.send(ctx, "POST", col.url+"/v1/traces", map[string][]string{"Content-Type": {"application/json"}}, []byte("{}"))
		return err
	}))
}

// A span is a span in the collector's file.
type span struct {
	Trace      string `json:"traceId"`
	ID         string `json:"spanId"`
	Parent     string `json:"parentSpanId"`
	Name       string `json:"name"`
	Kind       int    `json:"kind"`
	Start      string `json:"startTimeUnixNano"`
	Stop       string `json:"endTimeUnixNano"`
	Attributes []attribute
	Status     struct {
		Code    int
		Message string
	}

	node       string // that sent it
	begin, end time.Time
}

type attribute struct {
	Key   string
	Value struct {
		String *string  `json:"stringValue"`
		Int    *string  `json:"intValue"`
		Double *float64 `json:"doubleValue"`
	}
}

const (
	kindServer = 2
	kindClient = 3
)

// text returns the value of an attribute, or empty.
func (s *span) text(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key && a.Value.String != nil {
			return *a.Value.String
		}
	}
	return ""
}

// number returns the value of an integer attribute, or -1.
func (s *span) number(key string) int {
	for _, a := range s.Attributes {
		if a.Key == key && a.Value.Int != nil {
			if n, err := strconv.Atoi(*a.Value.Int); err == nil {
				return n
			}
		}
	}
	return -1
}

// spans returns all spans that the collector received so far.
func (col *collector) spans(t *testing.T) (all []*span) {
	t.Helper()
	file := must.Get(os.Open(col.file))(t)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var batch struct {
			ResourceSpans []struct {
				Resource   struct{ Attributes []attribute }
				ScopeSpans []struct{ Spans []*span }
			}
		}
		must.Succeed(t, json.Unmarshal(lines.Bytes(), &batch))
		for _, resource := range batch.ResourceSpans {
			of := span{Attributes: resource.Resource.Attributes}
			if of.text("service.name") != "rowmill" {
				t.Errorf("spans are of %+v", resource.Resource)
			}
			for _, scope := range resource.ScopeSpans {
				for _, s := range scope.Spans {
					s.node, s.begin, s.end = of.text("service.instance.id"), unixNano(t, s.Start), unixNano(t, s.Stop)
					all = append(all, s)
				}
			}
		}
	}
	must.Succeed(t, lines.Err())
	return all
}

func unixNano(t *testing.T, text string) time.Time {
	t.Helper()
	n := must.Get(strconv.ParseInt(text, 10, 64))(t)
	return time.Unix(0, n)
}
