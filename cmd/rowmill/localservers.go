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
	"sync"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/gpu"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine/launch"
	"github.com/rowmill/rowmill/engine/openai"
	"github.com/rowmill/rowmill/internal/port"
)

// localServers is the part of a node that starts the inference servers of the setting
// servers, and ends them with the node. It starts after Storage, because the lock of the
// records shows that no other node uses the data directory.
type localServers struct {
	partBase
	engines *nodeEngines

	running  []*launch.Server
	reserved []*port.Reservation // ports of the servers
}

// Start starts the servers in the background, and names them to the engines. It returns
// an error if the machine has fewer GPUs than the servers need.
func (l *localServers) Start(ctx context.Context) error {
	list := l.Settings.Servers
	if len(list) == 0 {
		return nil
	}
	visible, err := l.assignGPUs(ctx)
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
	l.addCloser("servers", l.stopServers)
	for i, set := range list {
		if err := l.startServer(ctx, set, launch.Config{Name: set.Name, Env: serverEnviron(os.Environ(), visible[i]), Folder: folder, Guard: []string{program, guardName}, Ready: set.Ready}); err != nil {
			return fmt.Errorf("servers[%d], %s: %w", i, set.Name, err)
		}
	}
	return nil
}

// startServer completes the configuration of a server and starts the server.
func (l *localServers) startServer(ctx context.Context, set settings.Server, config launch.Config) error {
	reserved, err := port.Reserve(ctx, "127.0.0.1")
	if err != nil {
		return err
	}
	l.reserved = append(l.reserved, reserved)
	named := settings.Engine{URL: "http://" + reserved.Address, Name: set.Name, Models: set.Models}
	adapter, err := openai.New(openai.Config{Name: named.Name, BaseURL: named.URL})
	if err != nil {
		return err
	}
	config.Command = strings.ReplaceAll(set.Run, settings.PortVariable, strconv.Itoa(reserved.Port))
	config.Probe = func(ctx context.Context) error { _, err := adapter.Probe(ctx); return err }
	config.Logger = l.Logger.With("address", reserved.Address)
	l.running = append(l.running, launch.Start(ctx, config))
	l.engines.local = append(l.engines.local, named)
	return nil
}

// stopServers ends all servers at the same time, and then releases their ports.
func (l *localServers) stopServers(ctx context.Context) error {
	var stops sync.WaitGroup
	for _, server := range l.running {
		stops.Go(func() { server.Stop(ctx) })
	}
	stops.Wait()
	for _, reserved := range l.reserved {
		reserved.Release()
	}
	return nil
}

// assignGPUs returns the value of CUDA_VISIBLE_DEVICES for each server: the indices of its
// GPUs, empty for a server without a number of GPUs. No GPU has two servers.
func (l *localServers) assignGPUs(ctx context.Context) ([]string, error) {
	visible, wanted := make([]string, len(l.Settings.Servers)), 0
	for _, set := range l.Settings.Servers {
		wanted += set.GPUs
	}
	if wanted == 0 {
		return visible, nil
	}
	free, err := l.engines.GPUs.Read(ctx)
	if len(free) < wanted {
		if errors.Is(err, gpu.ErrNone) {
			err = nil
		}
		return nil, errors.Join(fmt.Errorf("servers: gpus is %d in total, and this machine has fewer NVIDIA GPUs: %d; lower gpus, or remove servers", wanted, len(free)), err)
	}
	for i, set := range l.Settings.Servers {
		var indices []string
		for _, g := range free[:set.GPUs] {
			indices = append(indices, strconv.Itoa(g.Index))
		}
		visible[i], free = strings.Join(indices, ","), free[set.GPUs:]
	}
	return visible, nil
}

// serverEnviron returns the environment of a server: the environment of the node without the
// node's own settings, which have keys, and with the GPUs of the server.
func serverEnviron(environ []string, visible string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(variable string) bool { return strings.HasPrefix(variable, "ROWMILL_") })
	if visible != "" {
		environ = append(environ, "CUDA_VISIBLE_DEVICES="+visible)
	}
	return environ
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
