package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/fleet"
	"github.com/rowmill/rowmill/engine/launch"
	"github.com/rowmill/rowmill/engine/placement"
	"github.com/rowmill/rowmill/http/exchange"
	apinodes "github.com/rowmill/rowmill/http/nodes"
)

// ServerList returns the servers that live nodes start and stop.
func (s *nodeService) ServerList(ctx context.Context) (all []client.Server, err error) {
	found, err := fleet.List(ctx, s.storage.Store)
	live := s.System.Nodes()
	for _, f := range found {
		if slices.ContainsFunc(live, func(n nodes.Status) bool { return n.ID == f.NodeID }) {
			all = append(all, s.toAPIServer(f))
		}
	}
	return all, err
}

func (s *nodeService) toAPIServer(f fleet.Status) client.Server {
	shown := client.Server{
		NodeID: f.NodeID, Node: f.Node, Name: f.Name, Models: exchange.OrEmptyList(s.engines.modelIDs(engine.ServerInfo{Models: f.Models})),
		GPUs: int64(f.GPUs), On: make([]int64, len(f.On)), Phase: string(f.Phase), Since: f.Since.UTC(), Mode: string(f.Mode),
		LoadSeconds: f.Load.Seconds(), TokensPerSecond: f.TokensPerSecond, Error: exchange.NilIfZero(f.Error),
	}
	for i, gpu := range f.On {
		shown.On[i] = int64(gpu)
	}
	if f.RetryAt.After(s.now()) {
		at := f.RetryAt.UTC()
		shown.RetryAt = &at
	}
	if since := f.FailingSince.UTC(); !since.IsZero() {
		shown.FailingSince = &since
	}
	return shown
}

// SetServerMode sets who decides about a server.
func (s *nodeService) SetServerMode(ctx context.Context, node, name string, mode placement.Mode) error {
	return fleet.SetMode(ctx, s.storage.Store, node, name, mode)
}

// ServerLog asks the node of a server for the end of the server's output.
func (s *nodeService) ServerLog(ctx context.Context, nodeID, name string, part apinodes.LogPart) (log client.ServerLog, err error) {
	question := url.Values{"name": {name}, "lines": {strconv.Itoa(part.Lines)}, "after": {strconv.FormatInt(part.After, 10)}}
	replies, err := s.System.Figures(ctx, nodeID, figuresServerLog+"?"+question.Encode())
	if err != nil {
		return log, err
	}
	for _, r := range replies {
		if r.Err != nil {
			return log, awayIfUnreached(r.Err)
		}
		var found *client.ServerLog
		if err := json.Unmarshal(r.Answer, &found); err != nil {
			return log, err
		}
		if found != nil {
			return *found, nil
		}
	}
	return log, fmt.Errorf("server %s: %w", name, rowmill.ErrNotFound)
}

// readLocalServerLog returns a part of the output of a server of this node; nil if there is
// no such server. The question is from ServerLog.
func (s *nodeService) readLocalServerLog(question string) (*client.ServerLog, error) {
	asked, err := url.ParseQuery(question)
	if err != nil {
		return nil, err
	}
	name := asked.Get("name")
	if !slices.ContainsFunc(s.Settings.Servers, func(set settings.Server) bool { return set.Name == name }) {
		return nil, nil
	}
	lines, _ := strconv.Atoi(asked.Get("lines"))
	after, _ := strconv.ParseInt(asked.Get("after"), 10, 64)
	text, end, err := launch.ReadOutput(filepath.Join(s.Settings.Data, "servers"), name, after, lines)
	return &client.ServerLog{Text: text, End: end}, err
}
