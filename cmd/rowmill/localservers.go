package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/fleet"
	"github.com/rowmill/rowmill/engine/launch"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/internal/port"
)

// localServers is the part of a node that prepares the inference servers of the setting
// servers. It starts after Storage, because the lock of the records shows that no other node
// uses the data directory. The part serverPlacement starts the servers.
type localServers struct {
	partBase
	engines *nodeEngines
	storage *nodeStorage

	config fleet.Config // empty Servers if the settings have none
}

// Start reserves ports for the servers, and names the servers to the engines. It returns an
// error if the machine has fewer GPUs than a server needs.
func (l *localServers) Start(ctx context.Context) error {
	list := l.Settings.Servers
	if len(list) == 0 {
		return nil
	}
	gpus, err := l.findGPUs(ctx)
	if err != nil {
		return err
	}
	folder := filepath.Join(l.Settings.Data, "servers")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("make the folder for the output of servers: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program of the node: %w", err)
	}
	rules := l.Settings.Placement
	l.config = fleet.Config{
		Node: l.nodeName(), GPUs: gpus, Rules: placement.Rules{Hold: rules.Hold, MaxWait: rules.MaxWait}, Drain: rules.Drain,
		Folder: folder, Guard: []string{program, guardName}, Environ: serverEnviron(os.Environ()), Values: l.storage.Store, Logger: l.Logger,
	}
	for i, set := range list {
		if err := l.addServer(ctx, set); err != nil {
			return fmt.Errorf("servers[%d], %s: %w", i, set.Name, err)
		}
	}
	return nil
}

// addServer reserves a port for a server, and adds the server to the configuration.
func (l *localServers) addServer(ctx context.Context, set settings.Server) error {
	reserved, err := port.Reserve(ctx, "127.0.0.1")
	if err != nil {
		return err
	}
	l.addCloser("port of "+set.Name, func(context.Context) error { reserved.Release(); return nil })
	names := map[string]string{}
	for id, name := range set.Models {
		if name != "" {
			names[id] = name
		}
	}
	named := settings.Engine{URL: "http://" + reserved.Address, Name: set.Name, Models: names}
	l.engines.local = append(l.engines.local, named)
	l.config.Servers = append(l.config.Servers, fleet.ServerConfig{
		Name: set.Name, URL: named.URL, Command: strings.ReplaceAll(set.Run, settings.PortVariable, strconv.Itoa(reserved.Port)), Run: set.Run, Served: l.describeModels(set.Models),
		GPUs: set.GPUs, Ready: set.Ready, Idle: set.Idle, Sleep: set.Sleep, Adapters: set.Adapters,
		Open: func() (engine.Engine, error) {
			return openai.New(openai.Config{Name: named.Name, BaseURL: named.URL, ModelMap: named.Models, Logger: l.Logger})
		},
	})
	return nil
}

// describeModels returns the models of a server that has never run. It returns none if the
// catalog does not know enough about one of them; the node then asks the server.
func (l *localServers) describeModels(models map[string]string) (served []engine.ServedModel) {
	for id, name := range models {
		m, found := l.engines.Catalog.Find(l.engines.Catalog.ResolveAlias(id))
		if !found || m.Kind == "" || m.Kind == rowmill.KindEmbedding && m.Dimension == 0 {
			return nil
		}
		s := engine.ServedModel{Name: id, Kind: m.Kind, Dimension: m.Dimension}
		if name != "" && name != id {
			s.Origin = name
		}
		served = append(served, s)
	}
	slices.SortFunc(served, func(a, b engine.ServedModel) int { return strings.Compare(a.Name, b.Name) })
	return served
}

// findGPUs returns the GPUs that servers may use.
func (l *localServers) findGPUs(ctx context.Context) (indices []int, err error) {
	needed := 0
	for _, set := range l.Settings.Servers {
		needed = max(needed, set.GPUs)
	}
	if indices = l.Settings.Placement.GPUs; indices == nil && needed > 0 {
		found, failure := l.engines.GPUs.Read(ctx)
		for _, g := range found {
			indices = append(indices, g.Index)
		}
		if !errors.Is(failure, gpu.ErrNone) {
			err = failure
		}
	}
	if len(indices) < needed {
		return nil, errors.Join(fmt.Errorf("servers: a server needs %d GPUs (gpus), and this machine has fewer NVIDIA GPUs: %d; lower gpus, or name other GPUs in placement.gpus", needed, len(indices)), err)
	}
	return indices, nil
}

// serverEnviron returns the environment of servers: the environment of the node without the
// node's own settings, which have keys.
func serverEnviron(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool { return strings.HasPrefix(variable, "ROWMILL_") })
}

// serverPlacement is the part of a node that starts and stops the servers of the setting
// servers, as their rows need them.
type serverPlacement struct {
	partBase
	servers  *localServers
	pipeline *jobPipeline
}

// Start starts the servers in the background.
func (p *serverPlacement) Start(ctx context.Context) error {
	config := p.servers.config
	if len(config.Servers) == 0 {
		return nil
	}
	config.Pipeline = fleetPipeline{p.pipeline}
	all := fleet.New(config)
	p.addCloser("servers", func(ctx context.Context) error { all.Stop(ctx); return nil })
	p.runInBackground(ctx, "placement of servers", all.Run)
	return nil
}

// fleetPipeline gives a fleet.Fleet access to the pipeline.
type fleetPipeline struct{ *jobPipeline }

// Engine returns the state of an engine of this node.
func (p fleetPipeline) Engine(name string) (s fleet.EngineState, found bool) {
	for _, e := range p.Engines() {
		if e.Name == name {
			_, inFlight, queued := e.Load()
			return fleet.EngineState{Up: e.Up, Info: e.Info, Rows: inFlight + queued, Tokens: e.AnsweredTokens()}, true
		}
	}
	return s, false
}

// Cluster returns the nodes that do not drain, and the demand of all nodes.
func (p fleetPipeline) Cluster() (self string, live []string, demand []fleet.Demand) {
	var all []nodes.Demand
	for _, n := range p.Nodes() {
		if n.Self {
			self = n.ID
		}
		if !n.Draining {
			live = append(live, n.ID)
		}
		all = append(all, n.Demand...)
	}
	for _, d := range nodes.SumDemand(all) {
		demand = append(demand, fleet.Demand{
			Demand: placement.Demand{Model: d.Model, Urgent: d.Urgent, Tokens: float64(d.Tokens), Since: d.Since}, Names: d.Names,
		})
	}
	return self, live, demand
}

// SetStopped tells the nodes which servers can start.
func (p fleetPipeline) SetStopped(list []fleet.StoppedServer) {
	var stopped []nodes.Engine
	for _, s := range list {
		stopped = append(stopped, nodes.Engine{Name: s.Name, Kind: s.Info.Kind, Simulated: s.Info.Simulated, Models: s.Info.Models, Stopped: true, Failure: s.Failure})
	}
	p.SetStoppedServers(stopped)
}

// guardName is the command with which a node starts the guard of a server.
const guardName = "guard-server"

func guardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guardName + " PID_FILE COMMAND",
		Short:  "Run an inference server until standard input ends",
		Long:   "Run an inference server until standard input ends. A node starts this command for\neach of its servers: when the node dies, its end of the pipe closes, and this\ncommand ends the server.",
		Args:   cobra.ExactArgs(2),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := launch.Guard{PIDFile: args[0], Command: args[1]}.Run(cmd.InOrStdin())
			if err == nil && code != 0 {
				os.Exit(code) // the last line of the output stays the server's
			}
			return err
		},
	}
}
