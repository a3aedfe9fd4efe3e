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
	// graceTimeout is how long a node may take after its drain to answer its last
	// requests and to close. It is less than stopTimeout, after which the watchdog ends
	// the process.
	graceTimeout = 8 * time.Second
	// requestGrace is the share of graceTimeout for requests: the parts that close
	// later need the rest.
	requestGrace = 4 * time.Second
)

// A node holds the data that all parts of a node share.
type node struct {
	Settings settings.Settings
	Logger   *slog.Logger
	Registry *prometheus.Registry

	watchdog   *watchdog     // nil in tests
	tryTimeout time.Duration // limit of each check of a diagnosis: of the records, the bucket, the other nodes
}

func newNode(set settings.Settings, log *slog.Logger) *node {
	b := buildInfo()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rowmill_build_info", Help: "1, labelled with the version of the program.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": b.Go},
	})
	info.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &node{Settings: set, Logger: log, Registry: registry, tryTimeout: tryTimeout}
}

// newLogger writes to standard error: text for a person at a terminal, JSON
// for everything else.
func newLogger(term *terminal.IO, set settings.Log) *slog.Logger {
	var level slog.LevelVar
	if err := level.UnmarshalText([]byte(set.Level)); err != nil {
		level.Set(slog.LevelInfo) // Validate has refused other levels already
	}
	options := &slog.HandlerOptions{Level: &level}
	if set.Format == "text" || set.Format == "auto" && term.Live {
		return slog.New(slog.NewTextHandler(term.Err, options))
	}
	return slog.New(slog.NewJSONHandler(term.Err, options))
}

// now returns the time to store in records.
func (n *node) now() time.Time { return time.Now().Add(n.Settings.ClockOffset) }

// nodeName returns the name of this node in records, in logs and for other nodes.
func (n *node) nodeName() string {
	if name := n.Settings.Cluster.Node; name != "" {
		return name
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		return name
	}
	return "node"
}

// A startStopper is a part of a node. Start returns once the part works.
type startStopper interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// A part is the base of a startStopper: it closes what Start opened.
type part struct {
	*node
	closers []closer // in the order of opening
}

// A closer closes one thing that a part has opened.
type closer struct {
	name  string
	close func(ctx context.Context) error
}

// onStop registers a function that Stop calls. The name is for errors and the watchdog.
func (p *part) onStop(name string, close func(ctx context.Context) error) {
	p.closers = append(p.closers, closer{name, close})
}

// run runs work in the background until Stop ends its context.
func (p *part) run(ctx context.Context, name string, work func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		work(ctx)
	}()
	p.onStop(name, func(context.Context) error {
		cancel()
		<-over
		return nil
	})
}

// Stop closes everything that the part opened, in reverse order. It may also be called
// for a part that has not started, or only in part. Calling it twice is harmless.
func (p *part) Stop(ctx context.Context) error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.watchdog.setStep(p.closers[i].name)
		if err := p.closers[i].close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.closers[i].name, err))
		}
	}
	p.closers = nil
	return errors.Join(errs...)
}
