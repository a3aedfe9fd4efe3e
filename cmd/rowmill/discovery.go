package main

import (
	"context"

	"github.com/rowmill/rowmill/engine/discover"
)

// serverDiscovery is the part of a node that looks for inference servers while the node runs.
type serverDiscovery struct {
	partBase
	engines  *nodeEngines
	pipeline *jobPipeline
}

// Start starts the search in the background, if the node looks for servers at all.
func (d *serverDiscovery) Start(ctx context.Context) error {
	if d.engines.finder == nil {
		return nil
	}
	d.runInBackground(ctx, "discovery", func(ctx context.Context) {
		d.engines.finder.Run(ctx, func(f discover.FoundServer) {
			for _, e := range d.pipeline.Engines() {
				if e.Info.Kind != "" { // this configured server has answered
					d.engines.policy.decideOnce(e.Info.Simulated)
				}
			}
			if d.engines.acceptFoundServer(f) {
				d.pipeline.Attach(f.Engine)
			}
		})
	})
	return nil
}
