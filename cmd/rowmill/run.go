package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/google/uuid"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/jobs"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

// startLocalNode returns the function that starts the node of `rowmill run`: with a random
// port and key, no quotas, and its log in a file. ROWMILL_ variables do not apply, because
// they are settings of a service.
func startLocalNode(term *terminal.IO) func(context.Context, jobs.LocalNodeOptions) (jobs.LocalNode, error) {
	return func(ctx context.Context, o jobs.LocalNodeOptions) (jobs.LocalNode, error) {
		s, err := localNodeSettings(term, o)
		if err != nil {
			return jobs.LocalNode{}, exit.WithCode(exit.Usage, err)
		}
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(effectiveMemoryLimit(s))
		}
		log, err := os.OpenFile(filepath.Join(o.Dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return jobs.LocalNode{}, err
		}
		m := newNodeProcess(s, slog.New(slog.NewTextHandler(log, nil)))
		if err := m.Run(ctx); err != nil {
			return jobs.LocalNode{}, errors.Join(fmt.Errorf("start the node of the run: %w", err), log.Close())
		}
		return jobs.LocalNode{
			URL: m.Listeners.URL, Key: s.APIKeys()[0], Failed: m.Failed(),
			Stop: func(ctx context.Context) error { return errors.Join(m.Close(ctx), log.Close()) },
		}, nil
	}
}

// localNodeSettings returns the settings of the node of `rowmill run`.
func localNodeSettings(term *terminal.IO, o jobs.LocalNodeOptions) (settings.Settings, error) {
	var src settings.Sources
	for _, variable := range term.Environ {
		if !strings.HasPrefix(variable, "ROWMILL_") {
			src.Environ = append(src.Environ, variable)
		}
	}
	add := func(flag, key string, values ...string) {
		src.Flags = append(src.Flags, settings.Flag{Name: flag, Key: key, Values: values})
	}
	add("--state", "data", o.Dir)
	add("run", "http.listen", "127.0.0.1:0")
	add("run", "api_key", "run_"+uuid.NewString())
	add("run", "quotas", "[{priority: 1, row_quota: 1000000000000, token_quota: 1000000000000000}]")
	add("run", "jobs.drain_timeout", "10s") // a person waits after Ctrl-C
	simulate := settings.Never
	if o.Simulate {
		simulate = settings.Always
	}
	add("--simulate", "simulator.enabled", string(simulate))
	if len(o.Engines) > 0 {
		add("--engine", "engines", o.Engines...)
	}
	if sources, err := o.SourcesSetting(term.Getenv); err != nil {
		return settings.Settings{}, err
	} else if sources != "" {
		add("run", "sources", sources)
	}
	for _, set := range o.Set {
		key, value, found := strings.Cut(set, "=")
		if !found {
			return settings.Settings{}, fmt.Errorf("flag --set %q must be KEY=VALUE", set)
		}
		add("--set", key, value)
	}
	return settings.Load(src)
}
