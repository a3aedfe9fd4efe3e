package main

import (
	"context"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/webhook"
	"github.com/rowmill/rowmill/webhook/sender"
)

// newWebhooks makes what sends events. They may go where inputs may come from.
func (m *Main) newWebhooks() {
	in := m.Settings.Inputs
	m.Webhooks = sender.New(sender.Config{
		Store: m.Store, Schedule: m.Settings.Webhooks.Retries, Clock: m.now, Logger: m.Logger, Registerer: m.Registry, Reason: input.Reason, Nodes: m.nodes,
		Transport: input.NewTransport(input.Config{
			ConnectTimeout: in.ConnectTimeout, AllowLoopback: in.AllowLoopback, AllowPrivateNetworks: in.AllowPrivateNetworks, Own: m.ownAddresses,
		}),
	})
}

// nodes is how many nodes there are, this one included.
func (m *Main) nodes() int {
	if m.Cluster == nil {
		return 1
	}
	return len(m.Cluster.Members())
}

// startWebhooks sends what is due, on nodes that own jobs.
func (m *Main) startWebhooks() {
	if m.Settings.Cluster.Role == settings.EnginesOnly {
		return
	}
	m.Webhooks.Start()
	m.opened("webhooks", m.Webhooks.Stop)
}

// announce makes the events that tell of the end of a job.
func (m *Main) announce(ctx context.Context, rec *store.Record) error {
	made, err := webhook.Announce(ctx, m.Store, rec)
	if made {
		m.Webhooks.Wake()
	}
	return err
}
