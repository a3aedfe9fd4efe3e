package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/retention"
	"github.com/rowmill/rowmill/cmd/rowmill/doctor"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// Checks returns the state of storage, certificates, nodes, inference servers and GPUs.
// Three faults make the node not ready: its storage belongs to another deployment,
// objects cannot be used, or a certificate has expired. With any other fault the node
// accepts jobs, and the jobs wait.
func (s *nodeService) Checks(ctx context.Context) []http.ReadinessCheck {
	var checks []http.ReadinessCheck
	say := func(name, text string) {
		checks = append(checks, http.ReadinessCheck{Name: name, OK: true, Text: text})
	}
	checks = append(checks, s.checkDeployment())
	s.checkRecords(ctx, say)
	checks = append(checks, s.checkObjects())
	for _, f := range doctor.CheckCertificates(s.Settings, s.now()) {
		checks = append(checks, http.ReadinessCheck{Name: f.Check, OK: f.Level != doctor.Fail, Text: f.Text + ": " + f.Remedy})
	}
	s.checkCluster(ctx, say)
	engines := s.Engines()
	for _, e := range engines {
		say("engine "+e.Name, s.describeEngine(e))
	}
	switch {
	case len(engines) > 0:
	case s.Settings.Cluster.Role == settings.APIOnly:
		say("engines", "none: rows run on other nodes, cluster.role is api")
	case len(s.Settings.Servers) > 0:
		say("engines", fmt.Sprintf("none runs now: the node starts %d servers for rows that wait", len(s.Settings.Servers)))
	case len(s.engines.Engines) > 0:
		say("engines", "no server has been asked yet")
	default:
		looking := s.Settings.Discover
		say("engines", fmt.Sprintf("NONE YET, jobs wait for a server at %s, looked for every %v; answers are not simulated: %s",
			strings.Join(looking.Addresses, ", "), looking.Interval, s.engines.waitReason))
	}
	for _, u := range s.engines.policy.unusedServers() {
		say("server "+u.Address, "FOUND AND NOT USED: "+u.reason+"; "+describeServer(u.Info)+", serves "+s.engines.formatModels(u.Info))
	}
	gpus, err := s.engines.gpus.Read(ctx)
	for _, g := range gpus {
		say(fmt.Sprintf("gpu %d", g.Index), describeGPU(g))
	}
	if err != nil && !errors.Is(err, gpu.ErrNone) {
		say("gpus", "cannot be read: "+shortText(err))
	}
	return checks
}

func (s *nodeService) describeEngine(e actors.EngineStatus) string {
	host := s.engines.engineHost(e.Name)
	since := e.Since.UTC().Format(time.RFC3339)
	if !e.Up {
		text := fmt.Sprintf("DOWN since %s, jobs for its models wait; at %s", since, host)
		if e.Err != nil {
			text += ": " + shortText(e.Err)
		}
		return text
	}
	limit, inFlight, queued := e.Load()
	text := fmt.Sprintf("%s at %s, up since %s, serves %s; a window of %d rows, %d in flight, %d waiting",
		describeServer(e.Info), host, since, s.engines.formatModels(e.Info), limit, inFlight, queued)
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

// shortText returns the text of an error, shortened to 300 characters.
func shortText(err error) string { return textfmt.Shorten(err.Error(), 300) }

// remoteTimeout limits each request of Checks to Redis or to the bucket. Clients of
// /readyz wait longer.
const remoteTimeout = 500 * time.Millisecond

// checkDeployment returns the deployment of the storage. If the storage now belongs to
// another deployment, the node is not ready: new jobs would go to the other deployment.
func (s *nodeService) checkDeployment() http.ReadinessCheck {
	held := s.StorageStatus().Held
	var skew *retention.SkewError
	switch {
	case held == nil:
		return http.ReadinessCheck{Name: "deployment", OK: true, Text: s.storage.deployment.String()}
	case errors.As(held, &skew):
		return http.ReadinessCheck{Name: "deployment", OK: true, Text: s.storage.deployment.String() + "; NO DATA IS REMOVED: " + held.Error()}
	}
	return http.ReadinessCheck{Name: "deployment", Text: "NO DATA IS REMOVED: " + held.Error()}
}

// checkRecords reports where the records are, which records can be lost, and whether
// anyone on the network can reach them.
func (s *nodeService) checkRecords(ctx context.Context, addCheck func(name, text string)) {
	found := s.StorageStatus().Findings
	if found.Jobs > 0 {
		addCheck("storage", fmt.Sprintf("%d jobs with %d bytes IN THE BUCKET AND IN NO RECORD: they stay until an operator decides, see rowmill storage check", found.Jobs, found.Bytes))
	}
	if found.Damaged > 0 {
		addCheck("storage", fmt.Sprintf("%d records or objects CANNOT BE READ, see rowmill storage check --read", found.Damaged))
	}
	addCheck("records", "at "+s.storage.recordsLocation())
	if s.storage.redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remoteTimeout)
	warnings, err := s.storage.redis.ListDurabilityRisks(ctx)
	cancel()
	if err != nil {
		addCheck("records", "the server's settings cannot be read: "+shortText(err))
	}
	for _, warning := range warnings {
		addCheck("records", "CAN BE LOST: "+warning)
	}
	for _, warning := range s.Settings.Store.ExposureWarnings() {
		addCheck("records", "ANYONE ON THE NETWORK CAN REACH THIS: "+warning)
	}
}

// objectsFresh is how long the result of a request to the bucket counts as the current
// state of the bucket.
const objectsFresh = 5 * time.Second

// checkObjects returns where objects are, and since when they cannot be used. It uses
// the results of the node's recent requests to the bucket. If there is no recent
// request, it makes one and waits for remoteTimeout at most.
func (s *nodeService) checkObjects() http.ReadinessCheck {
	known := s.StorageMonitor()
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		known.Probe(context.Background(), objectsFresh)
	}()
	select {
	case <-looked:
	case <-time.After(remoteTimeout):
	}
	outage, away := known.ObjectsOutage()
	if !away {
		return http.ReadinessCheck{Name: "objects", OK: true, Text: "at " + s.storage.objectsLocation()}
	}
	what := "CANNOT BE USED"
	if outage.Full {
		what = "HAVE NO ROOM"
	}
	return http.ReadinessCheck{Name: "objects", Text: fmt.Sprintf("%s since %s, jobs wait; at %s: %s",
		what, outage.Since.Format(time.RFC3339), s.storage.objectsLocation(), shortText(outage.Err))}
}

// checkCluster reports the state of each node, and whether the traffic between nodes is
// encrypted.
func (s *nodeService) checkCluster(ctx context.Context, addCheck func(name, text string)) {
	if s.members.Cluster == nil {
		return
	}
	for _, n := range s.Nodes(ctx) {
		text := fmt.Sprintf("role %s, %s, at %s, version %s, serves %s; owns %d jobs, %d of %d rows in flight",
			n.Role, n.State, n.URL, n.Version, cmp.Or(terminal.AbbreviateList(n.Models), "no model"), n.Jobs, n.InFlight, n.Window)
		switch {
		case n.Self:
			text += "; this one"
		case n.Since == nil:
			text = fmt.Sprintf("role %s, at %s, has not said what it serves yet", n.Role, n.URL)
		}
		addCheck("node "+n.ID, text)
	}
	gossip, requests := "encrypted", "with mutual TLS"
	if s.Settings.Cluster.Key == "" {
		gossip = "without encryption"
	}
	if s.Settings.Cluster.TLSCert == "" {
		requests = "without TLS"
	}
	addCheck("cluster", fmt.Sprintf("gossip on %s %s, requests between nodes on %s %s", s.Settings.Cluster.Listen, gossip, s.members.peers.Addr(), requests))
	for _, warning := range s.Settings.Cluster.ExposureWarnings() {
		addCheck("cluster", "ANYONE ON THE NETWORK CAN REACH THIS: "+warning)
	}
}
