package main

import (
	"context"
	"fmt"
	nethttp "net/http"
	"strings"

	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/console"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/identity"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/journal"
)

// openListener opens the sockets of the API and of administration; requests wait
// until openAPI.
func (m *Main) openListener(ctx context.Context) error {
	var err error
	set := m.Settings.HTTP
	if m.api, err = listen(ctx, set.Listen, set.TLSCert, set.TLSKey, m.Logger); err != nil {
		return err
	}
	m.opened("listener", m.api.stop)
	m.Addr = m.api.Addr
	m.URL, _ = m.api.url()
	if set.AdminListen == "" {
		return nil
	}
	if m.admin, err = listen(ctx, set.AdminListen, "", "", m.Logger); err != nil {
		return err
	}
	m.opened("admin listener", m.admin.stop)
	m.AdminAddr = m.admin.Addr
	return nil
}

// openJournal opens the file of the audit record, where there is to be one.
func (m *Main) openJournal() (err error) {
	if m.Settings.Log.Audit == "" {
		return nil
	}
	if m.journal, err = journal.Open(m.Settings.Log.Audit); err != nil {
		return fmt.Errorf("log.audit: %w", err)
	}
	m.opened("file of the audit record", func(context.Context) error { return m.journal.Close() })
	return nil
}

// audited is a store whose audit record stands in the file and is sent, too.
func (m *Main) audited(s store.Store) store.Store {
	if m.journal != nil {
		s = m.journal.Of(s)
	}
	if m.stream != nil {
		s = m.stream.Of(s)
	}
	return s
}

// openAPI answers requests.
func (m *Main) openAPI(ctx context.Context) error {
	set := m.Settings.HTTP
	if err := m.openJournal(); err != nil {
		return err
	}
	if err := m.openStream(ctx); err != nil {
		return err
	}
	m.opened("API", m.api.stop)
	objects, err := m.serveObjects()
	if err != nil {
		return err
	}
	if len(m.Settings.APIKeys()) == 0 {
		if m.FirstKey, err = http.EnsureFirstKey(ctx, m.audited(m.Store), m.now()); err != nil {
			return err
		}
	}
	config := http.Config{
		Store: m.audited(m.Pipeline.Watch().Store()), Bucket: m.Pipeline.Watch().Requests(), Catalog: m.Catalog, Service: service{m.Pipeline, m}, Webhooks: m.Webhooks,
		Logger: m.Logger, Registerer: m.Registry, Gatherer: m.Registry, Tracer: m.Tracer,
		Now: m.now, EnginesOnly: m.Settings.Cluster.Role == settings.EnginesOnly,
		AdminKeys: m.Settings.APIKeys(), Version: http.Version(buildInfo()),
		Console: console.Files(),
		Objects: objects, MaxBodyBytes: int64(set.MaxBody), MaxFileBytes: int64(set.MaxFile), MaxUploadBytes: int64(set.MaxUpload), MaxInputRows: m.Settings.Inputs.MaxRows, MaxRowBytes: int(m.Settings.Inputs.MaxRowBytes), Dedup: m.Settings.Jobs.Dedup,
		RequestsPerMinute: set.RequestsPerMinute, MaxKeys: set.MaxKeys, MaxStreams: set.MaxStreams,
	}
	if o := m.Settings.OIDC; o.Issuer != "" {
		config.Issuer = identity.New(identity.Config{
			Issuer: o.Issuer, Audience: o.Audience,
			Account: o.Account, AccountClaim: o.AccountClaim, Accounts: o.Accounts,
			Role: o.Role, RoleClaim: o.RoleClaim, Roles: o.Roles, Ranks: http.Roles(),
			ClockTolerance: o.ClockTolerance, KeysInterval: o.KeysInterval, Now: m.now, Logger: m.Logger,
		})
	}
	for _, q := range m.Settings.Quotas {
		config.Quotas = append(config.Quotas, http.Quota{Priority: q.Priority, RowQuota: *q.RowQuota, TokenQuota: *q.TokenQuota})
	}
	if set.AdminListen != "" {
		config.Gatherer = nil // metrics are on the other address
		m.opened("admin listener", m.admin.stop)
		m.serve(m.admin, adminHandler(m.Registry, m.Pipeline))
	}
	if m.API, err = http.New(config); err != nil {
		return err
	}
	secrets, err := set.SigningKeys()
	if err != nil {
		return fmt.Errorf("http.signing_key: %w", err)
	}
	if err := m.API.SealWith(secrets); err != nil {
		return err
	}
	m.serve(m.api, m.API.Handler())
	return nil
}

// serveObjects returns what answers the signed URLs of a directory; nil for
// objects that have an address of their own.
func (m *Main) serveObjects() (nethttp.Handler, error) {
	if m.folder == nil {
		return nil, nil
	}
	base, open := m.api.url()
	if public := m.Settings.HTTP.PublicURL; public != "" {
		base = strings.TrimRight(public, "/")
	} else if open {
		m.Logger.Warn("download links will name this machine only: set http.public_url (--public-url) to the address that clients use", "address", base)
	}
	if err := m.folder.SetPublicURL(base); err != nil {
		return nil, fmt.Errorf("http.public_url: %w", err)
	}
	return m.folder.Handler(), nil
}

// serve answers on a listener until Close; any other end is a failure.
func (m *Main) serve(l *listener, handler nethttp.Handler) {
	go func() {
		if err := l.serve(handler); err != nil {
			m.failed <- err
		}
	}()
}
