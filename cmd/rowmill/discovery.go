package main

import (
	"context"

	"github.com/rowmill/rowmill/engine/discover"
)

// discovery looks for inference servers while the node runs.
type discovery struct {
	part
	engines  *engines
	pipeline *pipeline
}

// Start starts the search, if the node looks for servers at all.
func (d *discovery) Start(ctx context.Context) error {
	if d.engines.finder == nil {
		return nil
	}
	d.run(ctx, "discovery", func(ctx context.Context) {
		d.engines.finder.Run(ctx, func(f discover.Found) {
			for _, e := range d.pipeline.Engines() {
				if e.Info.Kind != "" { // a configured server that has answered
					d.engines.policy.decide(e.Info.Simulated)
				}
			}
			if d.engines.admit(f) {
				d.pipeline.Attach(f.Engine)
			}
		})
	})
	return nil
}
