package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/internal/spelling"
)

// service is the pipeline as the API sees it.
type service struct {
	*actors.System
	node *Main
}

var _ http.Service = service{}

// Checks has a line for each inference server and each GPU, and says where
// records and objects are and who else is there. Only storage that is
// another deployment's and objects that cannot be used make the node unready:
// without them it neither takes larger inputs nor gives results, where another
// node may. Whatever else it lacks, jobs are accepted and
// wait.
func (s service) Checks(ctx context.Context) []http.Check {
	var checks []http.Check
	say := func(name, text string) { checks = append(checks, http.Check{Name: name, OK: true, Text: text}) }
	checks = append(checks, s.deploymentCheck())
	s.checkRecords(ctx, say)
	checks = append(checks, s.checkObjects())
	s.checkCluster(ctx, say)
	engines := s.Engines()
	for _, e := range engines {
		say("engine "+e.Name, s.node.describeEngine(e))
	}
	switch {
	case len(engines) > 0:
	case s.node.Settings.Cluster.Role == settings.APIOnly:
		say("engines", "none: rows run on other nodes, cluster.role is api")
	case len(s.node.Engines) > 0:
		say("engines", "not asked yet")
	default:
		looking := s.node.Settings.Discover
		say("engines", fmt.Sprintf("NONE YET, jobs wait for a server at %s, looked for every %v; answers are not simulated: %s",
			strings.Join(looking.Addresses, ", "), looking.Interval, s.node.search.waiting))
	}
	for _, u := range s.node.search.policy.passedOver() {
		say("server "+u.Address, "FOUND AND NOT USED: "+u.reason+"; "+identified(u.Info)+", serves "+s.node.serves(u.Info))
	}
	gpus, err := s.node.gpus.Read(ctx)
	for _, g := range gpus {
		say(fmt.Sprintf("gpu %d", g.Index), describeGPU(g))
	}
	if err != nil && !errors.Is(err, gpu.ErrNone) {
		say("gpus", "cannot be read: "+short(err))
	}
	return checks
}

func (m *Main) describeEngine(e actors.EngineStatus) string {
	host := m.host(e.Name)
	since := e.Since.UTC().Format(time.RFC3339)
	if !e.Up {
		text := fmt.Sprintf("DOWN since %s, jobs for its models wait; at %s", since, host)
		if e.Err != nil {
			text += ": " + short(e.Err)
		}
		return text
	}
	limit, inFlight, queued := e.Load()
	text := fmt.Sprintf("%s at %s, up since %s, serves %s; a window of %d rows, %d in flight, %d waiting",
		identified(e.Info), host, since, m.serves(e.Info), limit, inFlight, queued)
	for _, why := range e.Waits() {
		text += "; " + why
	}
	return text
}

func describeGPU(g gpu.GPU) string {
	text := g.Name
	gib := func(bytes int64) float64 { return float64(bytes) / float64(settings.GiB) }
	if g.MemoryTotal >= 0 && g.MemoryUsed >= 0 {
		text += fmt.Sprintf(", %.1f of %.1f GiB used", gib(g.MemoryUsed), gib(g.MemoryTotal))
	}
	if g.Utilisation >= 0 {
		text += fmt.Sprintf(", %.0f %% busy", math.Round(100*g.Utilisation))
	}
	return text
}

// short cuts an error to what fits into a line.
func short(err error) string { return spelling.Shorten(err.Error(), 300) }

// host is where an engine's server is, HOST:PORT; a server that was found is
// called by it.
func (m *Main) host(name string) string {
	if m.Simulator != nil && name == simulatorName {
		return m.Simulator.Addr().String()
	}
	for _, e := range m.Settings.Engines {
		if e.DisplayName() == name {
			return e.Host()
		}
	}
	return name
}
