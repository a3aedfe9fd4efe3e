package settings

import (
	"encoding/base64"
	"maps"
	"net/url"
	"slices"
	"time"
)

// HTTP configures how clients reach the node.
type HTTP struct {
	// Listen is the address of the API. Default: 127.0.0.1:8088, so that the API is
	// open to the network only if the operator sets another address.
	Listen string `yaml:"listen" default:"127.0.0.1:8088"`

	// AdminListen is a separate address for /metrics and pprof. Default: empty. Then
	// /metrics is served on Listen, and pprof is off.
	AdminListen string `yaml:"admin_listen"`

	// PublicURL is the base of signed URLs, such as https://mill.example.org. Default:
	// empty, which means the scheme and address of Listen.
	PublicURL string `yaml:"public_url"`

	// TLSCert and TLSKey are the PEM files of the certificate and its key; set both or
	// neither. Default: none, which means plain HTTP.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`

	// SigningKey signs the URLs of results if objects are in a directory, and encrypts
	// the session cookies of the console: 32 bytes or more in base64. With several
	// keys, separated by commas or white space, every key verifies and the first key
	// signs, so that a key can be changed. The word "records" stands for the keys that
	// the first node creates and stores in the records. Default: none, which means
	// these keys in the records, because all nodes can read them.
	SigningKey Secret `yaml:"signing_key"`

	// MaxBody limits the body of a request. Default: 512 MiB. Larger inputs should be
	// files: uploaded in parts, or at a URL.
	MaxBody Bytes `yaml:"max_body" default:"512MiB" min:"1"`

	// MaxFile limits a file that is uploaded in one request, and one part of an upload
	// in parts. Default: 512 MiB, as at OpenAI.
	MaxFile Bytes `yaml:"max_file" default:"512MiB" min:"1"`

	// MaxUpload limits a file that is uploaded in parts. Default: 8 GiB, as at OpenAI.
	MaxUpload Bytes `yaml:"max_upload" default:"8GiB" min:"1"`

	// RequestsPerMinute limits the requests that an API key may send to this node in a
	// minute, if the key has no limit of its own. Default: 0, no limit, because jobs of
	// different accounts share the engines fairly anyway.
	RequestsPerMinute int `yaml:"requests_per_minute"`

	// MaxKeys limits the number of API keys of each account. Default: 1,000, far more
	// than people and programs need. Every node holds all keys in memory and reads them
	// again every two seconds.
	MaxKeys int `yaml:"max_keys" default:"1000" min:"1"`

	// MaxStreams limits the event streams of this node. Default: 256, more than people
	// watch at once. Each stream holds a connection.
	MaxStreams int `yaml:"max_streams" default:"256" min:"1"`
}

// OIDC configures which OpenID Connect tokens the node accepts in place of API keys,
// and which account and role a token has. See package oidc.
type OIDC struct {
	// Issuer is the URL of an OpenID Connect issuer, as its tokens name it. Default:
	// empty, which means that the node accepts no tokens.
	Issuer string `yaml:"issuer"`
	// Audience is the audience that tokens must have. Required with Issuer: without an
	// audience, the node would accept tokens for other services of the issuer.
	Audience string `yaml:"audience"`

	// AccountClaim is the claim that names the account of a token; dots in its name
	// lead into nested objects. The value of the claim is a string or a list of
	// strings. Accounts maps these values to accounts; without Accounts, the values are
	// account names. Account is the account of tokens without a known value. Default:
	// empty, which means that such tokens are refused.
	AccountClaim string            `yaml:"account_claim"`
	Accounts     map[string]string `yaml:"accounts"`
	Account      string            `yaml:"account"`

	// RoleClaim, Roles and Role give a token its role (admin, user or reader) in the
	// same way: RoleClaim names the claim, Roles maps its values to roles, and Role is
	// the role of tokens without such a value. If several values match, the highest
	// role counts. Without Roles, no value of the claim gives a role.
	RoleClaim string            `yaml:"role_claim"`
	Roles     map[string]string `yaml:"roles"`
	Role      string            `yaml:"role"`

	// ClockTolerance is how far the issuer's clock may differ from this node's.
	// Default: 30s, more than the difference of clocks with NTP, and short compared
	// with the life of a token.
	ClockTolerance time.Duration `yaml:"clock_tolerance" default:"30s"`
	// KeysInterval is how long the node uses the issuer's keys before it fetches them
	// again. Default: 1h, so the node may accept a withdrawn key for up to an hour.
	// When a token is signed with an unknown key, the node fetches the keys at once.
	KeysInterval time.Duration `yaml:"keys_interval" default:"1h"`
}

// recordsWord is the entry of SigningKey that means the keys in the records.
const recordsWord = "records"

// SigningKeys returns the keys that sign URLs and encrypt sessions. The first key
// signs. A nil key means the keys in the records. An empty result means only the keys
// in the records.
func (h HTTP) SigningKeys() ([][]byte, error) {
	return decodeKeys(h.SigningKey, "32 bytes or more in base64, or the word "+recordsWord, func(field string) ([]byte, bool) {
		if field == recordsWord {
			return nil, true
		}
		key, err := base64.StdEncoding.DecodeString(field)
		return key, err == nil && len(key) >= 32
	})
}

// check checks the settings of the API.
func (h HTTP) check(require requireFunc) {
	require(isHostPort(h.Listen), "http.listen", "must be HOST:PORT, is %q", h.Listen)
	require(h.AdminListen == "" || isHostPort(h.AdminListen), "http.admin_listen", "must be HOST:PORT, is %q", h.AdminListen)
	require(h.PublicURL == "" || isBaseURL(h.PublicURL), "http.public_url", "must be an http or https URL without query, is %q", h.PublicURL)
	require((h.TLSCert == "") == (h.TLSKey == ""), "http.tls_cert", "must be set together with http.tls_key: set both or neither")
	_, err := h.SigningKeys()
	require(err == nil, "http.signing_key", "%v", err)
	require(h.RequestsPerMinute >= 0, "http.requests_per_minute", "must be at least 1, or 0 for no limit, is %d", h.RequestsPerMinute)
}

// check checks the settings of tokens against each other.
func (o OIDC) check(require requireFunc) {
	if o.Issuer == "" {
		require(o.Audience == "" && o.AccountClaim == "" && o.RoleClaim == "" && o.Account == "" && o.Role == "" && len(o.Accounts) == 0 && len(o.Roles) == 0,
			"oidc", "needs oidc.issuer, the URL of the issuer of accepted tokens")
		return
	}
	u, err := url.Parse(o.Issuer)
	require(isBaseURL(o.Issuer) && err == nil && (u.Scheme == "https" || isLoopbackHost(u.Host)), "oidc.issuer", "must be an https URL without query, as tokens name it, is %q", o.Issuer)
	require(o.Audience != "", "oidc.audience", "must be the audience of tokens, such as the client's id at the issuer: otherwise tokens for other services would be accepted")
	require(o.AccountClaim != "" || o.Account != "", "oidc.account", "must name the account of all tokens, or set oidc.account_claim to the claim with the account")
	require(o.AccountClaim != "" || len(o.Accounts) == 0, "oidc.accounts", "maps the values of oidc.account_claim, which is not set")
	require(o.RoleClaim != "" || o.Role != "", "oidc.role", "must be the role of all tokens, or set oidc.role_claim to the claim with the role")
	require((o.RoleClaim != "") == (len(o.Roles) > 0), "oidc.roles", "maps the values of oidc.role_claim: set both or neither")
	known := func(key, role string) {
		require(slices.Contains([]string{"admin", "user", "reader"}, role), key, "must be admin, user or reader, is %q", role)
	}
	if o.Role != "" {
		known("oidc.role", o.Role)
	}
	for _, value := range slices.Sorted(maps.Keys(o.Roles)) {
		known("oidc.roles."+value, o.Roles[value])
	}
	require(o.ClockTolerance >= 0 && o.ClockTolerance <= 10*time.Minute, "oidc.clock_tolerance", "must be 0s to 10m, is %v", o.ClockTolerance)
	require(o.KeysInterval >= time.Minute, "oidc.keys_interval", "must be at least 1m, is %v", o.KeysInterval)
}
