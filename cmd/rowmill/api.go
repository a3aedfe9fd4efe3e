package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	nethttp "net/http"
	"strings"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/console"
	"github.com/rowmill/rowmill/http"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/keys"
	"github.com/rowmill/rowmill/http/oidc"
	"github.com/rowmill/rowmill/http/webhook/sender"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
	"github.com/rowmill/rowmill/store/journal"
)

// apiPart is the part of a node that answers the requests of clients.
type apiPart struct {
	partBase
	pipeline *jobPipeline
	service  http.Service

	API      *http.Server
	FirstKey string                // administrator key that this start created; empty if it created none. Never log it
	journal  *journal.AuditJournal // writes audit entries to the file log.audit; nil if there is no such file
	stream   *sender.AuditStream   // sends audit entries to log.audit_webhook; nil if there is no such receiver
}

// openAuditJournal opens the file for audit entries, if the setting log.audit names one.
func (a *apiPart) openAuditJournal() (err error) {
	if a.Settings.Log.Audit == "" {
		return nil
	}
	if a.journal, err = journal.Open(a.Settings.Log.Audit); err != nil {
		return fmt.Errorf("log.audit: %w", err)
	}
	a.addCloser("file of the audit record", func(context.Context) error { return a.journal.Close() })
	return nil
}

// wrapWithAudit returns a store like s that also writes each audit entry to the file and to
// the receiver of audit entries, if the settings name them.
func (a *apiPart) wrapWithAudit(s store.Store) store.Store {
	if a.journal != nil {
		s = a.journal.WrapStore(s)
	}
	if a.stream != nil {
		s = a.stream.WrapStore(s)
	}
	return s
}

// Start creates the API, and begins to answer requests at the API address and the admin
// address.
func (a *apiPart) Start(ctx context.Context) error {
	set, p, on := a.Settings.HTTP, a.pipeline, a.pipeline.listeners
	if err := a.openAuditJournal(); err != nil {
		return err
	}
	if err := a.openAuditStream(ctx); err != nil {
		return err
	}
	a.addCloser("API", on.api.stop)
	objects, err := a.newObjectHandler()
	if err != nil {
		return err
	}
	if len(a.Settings.APIKeys()) == 0 {
		if a.FirstKey, err = keys.EnsureFirstKey(ctx, a.wrapWithAudit(p.storage.Store), a.now()); err != nil {
			return err
		}
	}
	config := a.buildConfig(objects)
	if set.AdminListen != "" {
		config.Gatherer = nil // the admin address serves the metrics instead
		a.addCloser("admin listener", on.admin.stop)
		on.serveInBackground(on.admin, newAdminHandler(a.Registry, p.System))
	}
	if a.API, err = http.New(config); err != nil {
		return err
	}
	secrets, err := set.SigningKeys()
	if err != nil {
		return fmt.Errorf("http.signing_key: %w", err)
	}
	if err := a.API.SetSessionSecrets(secrets); err != nil {
		return err
	}
	on.serveInBackground(on.api, a.API.Handler())
	return nil
}

// adminKey returns an administrator key of the configuration, or else the key that this start
// created; empty if there is neither, because the store has only hashes of keys.
func (a *apiPart) adminKey() string {
	if configured := a.Settings.APIKeys(); len(configured) > 0 {
		return configured[0]
	}
	return a.FirstKey
}

// buildConfig builds the API's configuration from the settings.
func (a *apiPart) buildConfig(objects nethttp.Handler) http.Config {
	set, p := a.Settings.HTTP, a.pipeline
	config := http.Config{
		Store: a.wrapWithAudit(p.StorageMonitor().Store()), Bucket: p.StorageMonitor().FailFastBucket(), Catalog: p.engines.Catalog, Service: a.service, Webhooks: p.Webhooks,
		Logger: a.Logger, Registerer: a.Registry, Gatherer: a.Registry, Tracer: p.traces.Tracer,
		Now: a.now, EnginesOnly: a.Settings.Cluster.Role == settings.EnginesOnly,
		AdminKeys: a.Settings.APIKeys(), Version: http.BuildInfo(readBuildMetadata()),
		Console: console.Files(),
		Objects: objects, Dedup: a.Settings.Jobs.Dedup, Sources: a.pipeline.storage.Sources, RequestsPerMinute: set.RequestsPerMinute,
		Limits: http.Limits{
			MaxBodyBytes: int64(set.MaxBody), MaxFileBytes: int64(set.MaxFile), MaxUploadBytes: int64(set.MaxUpload),
			MaxInputRows: a.Settings.Inputs.MaxRows, MaxRowBytes: int(a.Settings.Inputs.MaxRowBytes),
			MaxKeys: set.MaxKeys, MaxStreams: set.MaxStreams,
		},
	}
	if o := a.Settings.OIDC; o.Issuer != "" {
		config.Issuer = oidc.New(oidc.Config{
			Issuer: o.Issuer, Audience: o.Audience,
			Account: o.Account, AccountClaim: o.AccountClaim, Accounts: o.Accounts,
			Role: o.Role, RoleClaim: o.RoleClaim, Roles: o.Roles, Ranks: caller.Roles(),
			ClockTolerance: o.ClockTolerance, KeysInterval: o.KeysInterval, Now: a.now, Logger: a.Logger,
		})
	}
	for _, q := range a.Settings.Quotas {
		config.Quotas = append(config.Quotas, client.Quota{Priority: q.Priority, RowQuota: *q.RowQuota, TokenQuota: *q.TokenQuota})
	}
	return config
}

// newObjectHandler returns the handler that serves objects of a local directory at signed
// URLs. It returns nil for objects in S3, because S3 serves its own signed URLs.
func (a *apiPart) newObjectHandler() (nethttp.Handler, error) {
	folder := a.pipeline.storage.folder
	if folder == nil {
		return nil, nil
	}
	base, open := a.pipeline.listeners.api.localURL()
	if public := a.Settings.HTTP.PublicURL; public != "" {
		base = strings.TrimRight(public, "/")
	} else if open {
		a.Logger.Warn("signed download URLs work only on this machine: set http.public_url (--public-url) to the address that clients use", "address", base)
	}
	if err := folder.SetPublicURL(base); err != nil {
		return nil, fmt.Errorf("http.public_url: %w", err)
	}
	return folder.Handler(), nil
}

// openAuditStream creates the stream of audit entries to log.audit_webhook, if this setting
// is not empty. Nodes without the API do not start their stream.
func (a *apiPart) openAuditStream(ctx context.Context) error {
	set := a.Settings.Log
	if set.AuditWebhook == "" {
		return nil
	}
	secrets, err := set.AuditSecrets()
	if err != nil {
		return fmt.Errorf("log.audit_webhook_secret: %w", err)
	}
	a.stream, err = sender.NewAuditStream(ctx, sender.AuditStreamConfig{URL: set.AuditWebhook, Secrets: secrets, Config: sender.Config{
		Store: a.pipeline.storage.Store, Reason: input.FailureReason, Nodes: a.pipeline.members.nodeCount, Clock: a.now, Logger: a.Logger, Registerer: a.Registry,
		// The operator has chosen this address, so private and loopback addresses are
		// allowed.
		Transport: &nethttp.Transport{Proxy: nethttp.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
	}})
	if err != nil {
		return fmt.Errorf("log.audit_webhook: %w", err)
	}
	if a.Settings.Cluster.Role == settings.EnginesOnly { // only nodes with the API send audit entries
		return nil
	}
	a.stream.Start()
	a.addCloser("stream of the audit record", a.stream.Stop)
	return nil
}

func (a *apiPart) reloadableSecrets() []reloadableSecret {
	all := []reloadableSecret{{
		name:    "api_key",
		valueIn: func(s settings.Settings) string { return strings.Join(s.APIKeys(), "\n") },
		apply: func(s settings.Settings) error {
			if len(s.APIKeys()) == 0 {
				return errors.New("the settings have no API key any more, so the old keys stay in use; to run without keys, restart the node")
			}
			a.API.SetAdminKeys(s.APIKeys())
			return nil
		},
	}, newParsedSecret("http.signing_key", func(set settings.Settings) settings.Secret { return set.HTTP.SigningKey },
		func(set settings.Settings) ([][]byte, error) { return set.HTTP.SigningKeys() },
		func(keys [][]byte) error {
			if signing := a.pipeline.storage.signing; signing != nil {
				if err := signing.Use(keys); err != nil {
					return err
				}
			}
			return a.API.SetSessionSecrets(keys)
		})}
	if a.stream != nil {
		all = append(all, newParsedSecret("log.audit_webhook_secret", func(set settings.Settings) settings.Secret { return set.Log.AuditWebhookSecret },
			func(set settings.Settings) ([]string, error) { return set.Log.AuditSecrets() },
			func(keys []string) error {
				if len(keys) == 0 {
					return errors.New("the settings have no log.audit_webhook_secret any more, so the old secret stays in use; to send no audit entries, restart the node without log.audit_webhook")
				}
				a.stream.SetSecrets(keys)
				return nil
			}))
	}
	return all
}
