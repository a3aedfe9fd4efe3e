package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/http/webhook"
	"github.com/rowmill/rowmill/http/webhook/sender"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
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

// openStream prepares what sends the audit record, where there is a receiver.
func (m *Main) openStream(ctx context.Context) error {
	set := m.Settings.Log
	if set.AuditWebhook == "" {
		return nil
	}
	secrets, err := set.AuditSecrets()
	if err != nil {
		return fmt.Errorf("log.audit_webhook_secret: %w", err)
	}
	m.stream, err = sender.NewStream(ctx, sender.StreamConfig{
		Store: m.Store, URL: set.AuditWebhook, Secrets: secrets, Reason: input.Reason, Nodes: m.nodes, Clock: m.now,
		Logger: m.Logger, Registerer: m.Registry,
		// The operator has chosen the address, so that it may be any.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
	})
	if err != nil {
		return fmt.Errorf("log.audit_webhook: %w", err)
	}
	if m.Settings.Cluster.Role == settings.EnginesOnly { // others send
		return nil
	}
	m.stream.Start()
	m.opened("stream of the audit record", m.stream.Stop)
	return nil
}

// announce makes the events that tell of the end of a job.
func (m *Main) announce(ctx context.Context, rec *store.Record) error {
	made, err := webhook.Announce(ctx, m.Store, rec)
	if made {
		m.Webhooks.Wake()
	}
	return err
}
