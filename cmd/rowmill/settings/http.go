package settings

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"
)

// HTTP is how clients reach the node.
type HTTP struct {
	// Listen is the address of the API. Default: 127.0.0.1:8088, so that
	// nothing is open to the network unless somebody says so.
	Listen string `yaml:"listen" default:"127.0.0.1:8088"`

	// AdminListen moves /metrics and pprof to an address of their own.
	// Default: empty; /metrics is then on Listen and pprof is off.
	AdminListen string `yaml:"admin_listen"`

	// PublicURL is the base of signed URLs, such as https://mill.example.org.
	// Default: empty, the scheme and address of Listen.
	PublicURL string `yaml:"public_url"`

	// TLSCert and TLSKey are PEM files; both or neither. Default: plain HTTP.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`

	// SigningKey signs the URLs of results where objects are in a directory, and seals
	// the sessions of the console: 32 bytes or more in base64. Several, apart by commas
	// or white space, all verify and the first signs, so that it can be changed. The
	// word records stands for the keys of the records, which the first node makes.
	// Default: none, those of the records, which all nodes have.
	SigningKey Secret `yaml:"signing_key"`

	// MaxBody bounds a request's body. Default: 512 MiB; above that an input
	// belongs in a file behind a URL.
	MaxBody Bytes `yaml:"max_body" default:"512MiB" min:"1"`

	// MaxFile bounds a file that is uploaded in one piece, and a part of one that is
	// not. Default: 512 MiB, what OpenAI takes.
	MaxFile Bytes `yaml:"max_file" default:"512MiB" min:"1"`

	// MaxUpload bounds a file that is uploaded in parts. Default: 8 GiB, what OpenAI
	// takes.
	MaxUpload Bytes `yaml:"max_upload" default:"8GiB" min:"1"`

	// RequestsPerMinute bounds the requests of each API key that has no bound
	// of its own, on this node. Default: 0, no bound: jobs of different
	// accounts take turns without one.
	RequestsPerMinute int `yaml:"requests_per_minute"`

	// MaxKeys bounds the API keys of each account. Default: 1,000, far more than
	// people and programs need; every node holds all keys and reads them anew
	// every two seconds.
	MaxKeys int `yaml:"max_keys" default:"1000" min:"1"`

	// MaxStreams bounds the streams of events of this node. Default: 256, more than
	// people look at; each holds a connection.
	MaxStreams int `yaml:"max_streams" default:"256" min:"1"`
}

// OIDC is whose tokens are taken in place of API keys, and what they stand for. See
// package identity.
type OIDC struct {
	// Issuer is the URL of an issuer of OpenID Connect, as its tokens name it. Default:
	// empty, no tokens are taken.
	Issuer string `yaml:"issuer"`
	// Audience is what tokens have to be for. Required beside Issuer: without it a token
	// for another service of the issuer would be one for this.
	Audience string `yaml:"audience"`

	// AccountClaim is the claim that says whom a bearer acts for, a string or a list;
	// dots lead into objects. Accounts maps its values; without it they are accounts.
	// Account is for tokens without such a value. Default: empty; they are refused.
	AccountClaim string            `yaml:"account_claim"`
	Accounts     map[string]string `yaml:"accounts"`
	Account      string            `yaml:"account"`

	// RoleClaim, Roles and Role are the same for the role: admin, user or reader, of
	// several the highest. Without Roles no value stands for one.
	RoleClaim string            `yaml:"role_claim"`
	Roles     map[string]string `yaml:"roles"`
	Role      string            `yaml:"role"`

	// ClockTolerance is how far the issuer's clock may be from this node's. Default:
	// 30s, more than clocks that are set by NTP differ by, and little beside the life
	// of a token.
	ClockTolerance time.Duration `yaml:"clock_tolerance" default:"30s"`
	// KeysInterval is for how long the issuer's keys are believed, while it can be
	// asked. Default: 1h: for so long a key that it has withdrawn still verifies; new
	// ones are asked for when they are met.
	KeysInterval time.Duration `yaml:"keys_interval" default:"1h"`
}

// recordsWord stands for the keys of the records in a list.
const recordsWord = "records"

// SigningKeys are the keys that sign URLs and seal sessions, the one that does first;
// nil among them for those of the records. None: those of the records alone.
func (h HTTP) SigningKeys() ([][]byte, error) {
	var keys [][]byte
	fields := keyFields(h.SigningKey)
	for i, field := range fields {
		if field == recordsWord {
			keys = append(keys, nil)
			continue
		}
		key, err := base64.StdEncoding.DecodeString(field)
		if err != nil || len(key) < 32 {
			return nil, fmt.Errorf("key %d of %d must be 32 bytes or more in base64, or the word %s; `openssl rand -base64 32` makes one", i+1, len(fields), recordsWord)
		}
		keys = append(keys, key)
	}
	if h.SigningKey != "" && len(keys) == 0 {
		return nil, errors.New("holds no key; `openssl rand -base64 32` makes one")
	}
	return keys, nil
}

// check holds the settings of the API against what they may be.
func (h HTTP) check(check checker) {
	check(isAddress(h.Listen), "http.listen", "must be HOST:PORT, is %q", h.Listen)
	check(h.AdminListen == "" || isAddress(h.AdminListen), "http.admin_listen", "must be HOST:PORT, is %q", h.AdminListen)
	check(h.PublicURL == "" || isBaseURL(h.PublicURL), "http.public_url", "must be an http or https URL without query, is %q", h.PublicURL)
	check((h.TLSCert == "") == (h.TLSKey == ""), "http.tls_cert", "needs http.tls_key beside it, and the reverse")
	_, err := h.SigningKeys()
	check(err == nil, "http.signing_key", "%v", err)
	check(h.RequestsPerMinute >= 0, "http.requests_per_minute", "must be at least 1, or 0 for no bound, is %d", h.RequestsPerMinute)
}

// check holds the settings of tokens against each other.
func (o OIDC) check(check checker) {
	if o.Issuer == "" {
		check(o.Audience == "" && o.AccountClaim == "" && o.RoleClaim == "" && o.Account == "" && o.Role == "" && len(o.Accounts) == 0 && len(o.Roles) == 0,
			"oidc", "needs oidc.issuer, the URL of the issuer whose tokens are taken")
		return
	}
	u, err := url.Parse(o.Issuer)
	check(isBaseURL(o.Issuer) && err == nil && (u.Scheme == "https" || isLoopbackHost(u.Host)), "oidc.issuer", "must be an https URL without query, as tokens name it, is %q", o.Issuer)
	check(o.Audience != "", "oidc.audience", "must say what tokens are for, such as the client's id at the issuer: without it a token for any other service would be taken")
	check(o.AccountClaim != "" || o.Account != "", "oidc.account", "must name the account of all tokens, or oidc.account_claim the claim that does")
	check(o.AccountClaim != "" || len(o.Accounts) == 0, "oidc.accounts", "maps the values of oidc.account_claim, which is not set")
	check(o.RoleClaim != "" || o.Role != "", "oidc.role", "must be the role of all tokens, or oidc.role_claim the claim that says so")
	check((o.RoleClaim != "") == (len(o.Roles) > 0), "oidc.roles", "maps the values of oidc.role_claim: set both or neither")
	known := func(key, role string) {
		check(slices.Contains([]string{"admin", "user", "reader"}, role), key, "must be admin, user or reader, is %q", role)
	}
	if o.Role != "" {
		known("oidc.role", o.Role)
	}
	for _, value := range slices.Sorted(maps.Keys(o.Roles)) {
		known("oidc.roles."+value, o.Roles[value])
	}
	check(o.ClockTolerance >= 0 && o.ClockTolerance <= 10*time.Minute, "oidc.clock_tolerance", "must be 0s to 10m, is %v", o.ClockTolerance)
	check(o.KeysInterval >= time.Minute, "oidc.keys_interval", "must be at least 1m, is %v", o.KeysInterval)
}
