package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	driver "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Config names the server and how to connect to it.
type Config struct {
	// URL is the address of the server: redis://[user:password@]host:port/db; rediss://
	// for TLS; or redis+sentinel://[user:password@]h1:p1,h2:p2/primary/db (and
	// rediss+sentinel://) to ask Sentinels for the primary. User and password are the
	// login at the servers, not at the Sentinels. Required.
	URL string

	// SentinelUsername and SentinelPassword are the login at the Sentinels. Default:
	// none.
	SentinelUsername, SentinelPassword string

	// TLS is the client configuration for a rediss URL. Default: the system's root
	// certificates and at least TLS 1.2.
	TLS *tls.Config

	// Prefix is the first part of every key name, so that several programs can share a
	// server. Default "rowmill:".
	Prefix string

	// AllowLostWrites lets Open accept a server behind Sentinels with the setting
	// min-replicas-to-write 0. Such a server accepts writes while a network partition
	// separates it from the new primary. After the partition all these writes are lost.
	AllowLostWrites bool

	// Timeouts limit the waits of a call.
	Timeouts Timeouts

	// PoolSize is the largest number of connections. Default 32: a server answers in well
	// under a millisecond, so 32 connections allow at least 30,000 calls a second.
	PoolSize int

	// Logger receives messages for operators and messages of the driver. Driver messages
	// of one format are logged at most once in 10 s. The driver has one logger for the
	// whole process: the logger of the store that was opened last. Default: nothing is
	// logged.
	Logger *slog.Logger

	// Metrics registers the metrics of calls. Default: none.
	Metrics prometheus.Registerer
}

// Timeouts limit the waits of a call, in addition to the call's context. If a context
// without a deadline is cancelled, the call returns at the latest after one of these
// timeouts.
type Timeouts struct {
	// Dial limits one attempt to connect. Default 2 s: within a site a connection takes
	// milliseconds, and one packet may be lost.
	Dial time.Duration
	// Answer limits one wait for an answer, or for the server to read a request.
	// Default 3 s: longer than the slowest sync of a slow disk, and short compared to a
	// lease.
	Answer time.Duration
	// Retry limits the time of all attempts of a call while the server cannot be
	// reached or says that it cannot serve now (it loads its data, or it has become a
	// replica). Default 5 s: a restart or a quick failover causes no error for the
	// caller, who has deadlines of its own.
	Retry time.Duration
}

// WithDefaults returns c with defaults for the zero fields.
func (c Config) WithDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "rowmill:")
	c.Timeouts.Dial = cmp.Or(c.Timeouts.Dial, 2*time.Second)
	c.Timeouts.Answer = cmp.Or(c.Timeouts.Answer, 3*time.Second)
	c.Timeouts.Retry = cmp.Or(c.Timeouts.Retry, 5*time.Second)
	c.PoolSize = cmp.Or(c.PoolSize, 32)
	c.TLS = cmp.Or(c.TLS, &tls.Config{MinVersion: tls.VersionTLS12})
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate names the first invalid field.
func (c Config) Validate() error {
	switch {
	case c.Timeouts.Dial < 0:
		return fmt.Errorf("redis: Timeouts.Dial is %v: it must not be negative", c.Timeouts.Dial)
	case c.Timeouts.Answer < 0:
		return fmt.Errorf("redis: Timeouts.Answer is %v: it must not be negative", c.Timeouts.Answer)
	case c.Timeouts.Retry < 0:
		return fmt.Errorf("redis: Timeouts.Retry is %v: it must not be negative", c.Timeouts.Retry)
	case c.PoolSize < 0:
		return fmt.Errorf("redis: PoolSize is %d: it must be at least 1", c.PoolSize)
	case strings.IndexByte(c.Prefix, 0) >= 0:
		return errors.New("redis: Prefix holds a NUL byte")
	}
	_, err := parseAddress(c.URL)
	return err
}

// An address is a parsed URL.
type address struct {
	tls      bool
	hosts    []string // host:port of the server, or of the Sentinels
	primary  string   // name under which the Sentinels know the primary; empty without Sentinels
	db       int
	username string
	password string
}

// parseAddress parses a URL. Its errors never repeat the URL, which may contain a
// password.
func parseAddress(text string) (address, error) {
	const forms = "give redis://[user:password@]host:port/db, rediss://… or redis+sentinel://[user:password@]h1:p1,h2:p2/primary/db"
	refuse := func(format string, args ...any) (address, error) {
		return address{}, fmt.Errorf("redis: URL: "+format+": "+forms, args...)
	}
	if text == "" {
		return refuse("it is empty")
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return refuse("it has no scheme")
	}
	var a address
	sentinel := false
	switch scheme {
	case "redis":
	case "rediss":
		a.tls = true
	case "redis+sentinel":
		sentinel = true
	case "rediss+sentinel":
		a.tls, sentinel = true, true
	default:
		return refuse("the scheme is %q", scheme)
	}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, err := url.Parse("redis://" + authority[:at] + "@host")
		if err != nil || user.User == nil {
			return refuse("user and password cannot be read; escape characters other than letters and digits as %%XX")
		}
		a.username = user.User.Username()
		a.password, _ = user.User.Password()
		authority = authority[at+1:]
	}
	for _, host := range strings.Split(authority, ",") {
		name, port, err := net.SplitHostPort(host)
		if number, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || number == 0 || name == "" {
			return refuse("%q is not host:port", host)
		}
		a.hosts = append(a.hosts, host)
	}
	if !sentinel && len(a.hosts) > 1 {
		return refuse("it names %d servers; only a redis+sentinel URL may name several", len(a.hosts))
	}
	db := path
	if sentinel {
		a.primary, db, _ = strings.Cut(path, "/")
		if a.primary == "" {
			return refuse("the primary's name is missing")
		}
	}
	if db != "" {
		number, err := strconv.ParseUint(db, 10, 16)
		if err != nil {
			return refuse("%q is not a database number", db)
		}
		a.db = int(number)
	}
	return a, nil
}

// once and never are values of the driver's options DialerRetries, MaxRetries and
// PipelinePoolSize.
const once, never = 1, -1

// connect creates the driver's client. The retries of the driver are disabled, because
// retryCall must know whether the server may have executed an earlier attempt.
func (e *Backend) connect(a address) *driver.Client {
	c := e.config
	var tlsConfig *tls.Config
	if a.tls {
		tlsConfig = c.TLS.Clone()
	}
	if a.primary != "" {
		return driver.NewFailoverClient(&driver.FailoverOptions{
			MasterName: a.primary, SentinelAddrs: a.hosts,
			SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword,
			Username: a.username, Password: a.password, DB: a.db, TLSConfig: tlsConfig,
			Protocol: 2, DisableIdentity: true, MaxRetries: never, DialerRetries: once, PipelinePoolSize: never,
			DialTimeout: c.Timeouts.Dial, ReadTimeout: c.Timeouts.Answer, WriteTimeout: c.Timeouts.Answer,
			PoolTimeout: c.Timeouts.Answer, PoolSize: c.PoolSize, MaxActiveConns: c.PoolSize, ContextTimeoutEnabled: true,
		})
	}
	return driver.NewClient(e.options(a.hosts[0]))
}

// options returns the driver's options for one server.
func (e *Backend) options(addr string) *driver.Options {
	c, a := e.config, e.at.Load()
	var tlsConfig *tls.Config
	if a.tls {
		tlsConfig = c.TLS.Clone()
	}
	return &driver.Options{
		Addr: addr, CredentialsProvider: e.credentials, DB: a.db, TLSConfig: tlsConfig,
		Protocol: 2, DisableIdentity: true, MaxRetries: never, DialerRetries: once, PipelinePoolSize: never,
		DialTimeout: c.Timeouts.Dial, ReadTimeout: c.Timeouts.Answer, WriteTimeout: c.Timeouts.Answer,
		PoolTimeout: c.Timeouts.Answer, PoolSize: c.PoolSize, MaxActiveConns: c.PoolSize, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// credentials returns the user and the password for a new connection.
func (e *Backend) credentials() (username, password string) {
	at := e.at.Load()
	return at.username, at.password
}
