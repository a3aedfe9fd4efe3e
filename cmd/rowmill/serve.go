package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/exit"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/cmd/rowmill/terminal"
)

func serveCommand(term *terminal.IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node: the API, the pipeline and the records, in one process.

Rows run on the inference servers named with --engine. Without --engine the node
looks for servers at the usual local ports: 8000 (vLLM), 8080 (llama.cpp),
11434 (Ollama), 30000 (SGLang). It does this at its start and again later. If it
finds none, a built-in simulated server makes up the answers; on a machine with an
NVIDIA GPU, jobs wait for a real server instead. --simulate changes this choice.
With --run the node starts a server itself, starts it again after a crash, and ends it
with the node.

Nothing else needs to be installed: records and objects are in the data directory.
Several nodes share records in Redis and objects in S3 instead (store.url,
objects.url). They find each other (cluster.listen, --join) and run each other's
rows; docs/cluster.md shows how to set up three nodes.

The first start without ROWMILL_API_KEY or --api-key-file makes an
administrator key and prints it, once.

The first SIGINT or SIGTERM, or rowmill nodes drain, lets rows in flight finish,
commits them and ends the node with code 0; unfinished jobs continue after the next
start, or on another node. If the process still runs 10 s after jobs.drain_timeout,
it logs the parts that have not stopped and ends with code 9. The second signal ends
the process at once; even then no committed row is lost.

A running node reads its secrets again when their files change and at SIGHUP
(docs/security.md lists them). If the node was started from a terminal, a SIGHUP of
that terminal ends it.

` + "Settings come from flags, then ROWMILL_ variables, then the file, then\ndefaults; `rowmill config print` shows them all.",
		Example: `  rowmill serve
  rowmill serve --data /srv/rowmill --listen 0.0.0.0:8088 --engine http://127.0.0.1:8000
  rowmill serve --run 'llama-server -m model.gguf --port {port}'
  rowmill serve --simulate
  rowmill serve --config rowmill.yaml --join 10.0.0.1:7946
  rowmill serve --set 'quotas=[{priority: 1, row_quota: 50000000}]' --set jobs.max_active=8`,
		Args: cobra.NoArgs,
	}
	load := addSettingsFlags(cmd.Flags(), term)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		return serveNode(cmd.Context(), term, s, load)
	}
	panicIf(cmd.MarkFlagFilename("config", "yaml", "yml"))
	panicIf(cmd.MarkFlagDirname("data"))
	return cmd
}

// serveNode runs a node until ctx ends, an operator drains the node, or a part of the node
// fails. Then it stops the node. reload reads the settings again.
func serveNode(ctx context.Context, term *terminal.IO, s settings.Settings, reload func() (settings.Settings, error)) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(effectiveMemoryLimit(s))
	}
	m := newNodeProcess(s, newLogger(term, s.Log))
	m.Secrets.Reload = reload
	if !term.Live { // on a terminal, SIGHUP means that the terminal was closed, and ends the node
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		m.Secrets.Hangup = hangup
	}
	m.watchdog = &watchdog{log: m.Logger, limit: s.Jobs.DrainTimeout + stopTimeout, end: func() { os.Exit(exit.Overdue) }}
	defer m.watchdog.disarm()
	context.AfterFunc(ctx, m.watchdog.arm) // arm does nothing if it is called after disarm
	if err := m.Run(ctx); err != nil {
		return exit.WithCode(exit.Failure, err)
	}
	printStartBanner(term, m)
	m.Logger.Info("listening", "address", m.Listeners.Addr.String(), "records", m.Storage.recordsLocation(), "objects", m.Storage.objectsLocation(), "version", readBuildMetadata().Version)
	tell := func(state string) {
		if err := notifySystemd(context.WithoutCancel(ctx), os.Getenv("NOTIFY_SOCKET"), state); err != nil {
			m.Logger.Warn("telling systemd the state of this process failed", "state", state, "err", err)
		}
	}
	tell(notifyReady)
	var failure error
	select {
	case failure = <-m.Failed():
		m.Logger.Error("a part of the node stopped", "err", failure)
	case <-m.Pipeline.DrainRequested():
		m.Logger.Info("stopping: the node drains, rows in flight finish", "limit", s.Jobs.DrainTimeout.String())
	case <-ctx.Done():
		m.Logger.Info("stopping: rows in flight finish", "reason", context.Cause(ctx).Error(), "limit", s.Jobs.DrainTimeout.String())
	}
	m.watchdog.arm()
	tell(notifyStopping)
	err := m.Close(context.WithoutCancel(ctx))
	m.Logger.Info("stopped")
	return exit.WithCode(exit.Failure, errors.Join(failure, err))
}

// effectiveMemoryLimit returns the memory limit of the process, in bytes: memory_limit, or a
// value computed from jobs.memory_budget if memory_limit is 0.
func effectiveMemoryLimit(s settings.Settings) int64 {
	if s.MemoryLimit > 0 {
		return int64(s.MemoryLimit)
	}
	limit := 3*s.Jobs.MemoryBudget + 32*settings.MiB
	if s.Objects.URL != "" {
		limit += 32 * settings.MiB
	}
	return int64(limit)
}

// panicIf panics if err is not nil. Only a mistake in this package causes such an error.
func panicIf(err error) {
	if err != nil {
		panic(err)
	}
}
