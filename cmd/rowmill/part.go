package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

const (
	// graceTimeout is how long a node may take after its drain to answer open requests
	// and to close its parts. It is less than stopTimeout, after which the watchdog
	// ends the process.
	graceTimeout = 8 * time.Second
	// requestGrace is how much of graceTimeout the open requests may use. The parts
	// that close later need the remaining time.
	requestGrace = 4 * time.Second
)

// A nodeEnv holds the settings, the logger and the metrics that all parts of a node share.
type nodeEnv struct {
	Settings settings.Settings
	Logger   *slog.Logger
	Registry *prometheus.Registry

	watchdog     *watchdog     // nil in tests
	checkTimeout time.Duration // timeout of each check of the records, the bucket and the other nodes in a diagnosis
}

func newNodeEnv(set settings.Settings, log *slog.Logger) *nodeEnv {
	b := readBuildMetadata()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rowmill_build_info", Help: "1, labelled with the version of the program.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": b.Go},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &nodeEnv{Settings: set, Logger: log, Registry: registry, checkTimeout: checkTimeout}
}

// newLogger returns a logger that writes to standard error, as text or as JSON. The
// format auto means text on a terminal and JSON elsewhere.
func newLogger(term *terminal.IO, set settings.Log) *slog.Logger {
	var level slog.LevelVar
	if err := level.UnmarshalText([]byte(set.Level)); err != nil {
		level.Set(slog.LevelInfo) // does not happen: Validate refuses unknown levels
	}
	options := &slog.HandlerOptions{Level: &level}
	if set.Format == "text" || set.Format == "auto" && term.Live {
		return slog.New(slog.NewTextHandler(term.Err, options))
	}
	return slog.New(slog.NewJSONHandler(term.Err, options))
}

// now returns the time of the clock plus clock_offset, for times in records.
func (n *nodeEnv) now() time.Time { return time.Now().Add(n.Settings.ClockOffset) }

// nodeName returns the name of this node in records and logs: cluster.node, or else the
// host name.
func (n *nodeEnv) nodeName() string {
	if name := n.Settings.Cluster.Node; name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "node"
}

// A nodePart is a part of a node that NodeProcess starts and stops. Start returns when the
// part works.
type nodePart interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// A partBase is the base that every part of a node embeds. Its method Stop closes
// everything that Start has opened.
type partBase struct {
	*nodeEnv
	closers []namedCloser // in the order in which the part opened them; Stop calls them in reverse
}

// A namedCloser is a function that closes one resource of a part, such as a listener.
type namedCloser struct {
	name  string
	close func(ctx context.Context) error
}

// addCloser registers a function that Stop calls to close a resource. The name of the
// resource is for errors and for the log of the watchdog.
func (p *partBase) addCloser(name string, closeFunc func(ctx context.Context) error) {
	p.closers = append(p.closers, namedCloser{name, closeFunc})
}

// runInBackground calls work in a new goroutine. Stop cancels the context of work and waits until
// work returns.
func (p *partBase) runInBackground(ctx context.Context, name string, work func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		work(ctx)
	}()
	p.addCloser(name, func(context.Context) error {
		cancel()
		<-over
		return nil
	})
}

// Stop closes everything that the part has opened, in reverse order. It may also be
// called if Start was not called or has failed. A second call does nothing.
func (p *partBase) Stop(ctx context.Context) error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.watchdog.setClosingPart(p.closers[i].name)
		if err := p.closers[i].close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.closers[i].name, err))
		}
	}
	p.closers = nil
	return errors.Join(errs...)
}
