package s3

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/internal/s3test"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	good := Config{Endpoint: "https://s3.example.org", Bucket: "rows", AccessKey: "a", SecretKey: "b"}
	must.Succeed(t, good.WithDefaults().Validate())
	for field, change := range map[string]func(*Config){
		"Endpoint":       func(c *Config) { c.Endpoint = "s3.example.org" },
		"Endpoint is":    func(c *Config) { c.Endpoint = "https://s3.example.org/bucket" },
		"PublicEndpoint": func(c *Config) { c.PublicEndpoint = "ftp://s3.example.org" },
		"Bucket":         func(c *Config) { c.Bucket = "" },
		"Bucket is":      func(c *Config) { c.Bucket = "Not A Bucket" },
		"Prefix":         func(c *Config) { c.Prefix = "/a" },
		"Prefix has":     func(c *Config) { c.Prefix = strings.Repeat("a", 501) },
		"SecretKey":      func(c *Config) { c.SecretKey = "" },
		"SessionToken":   func(c *Config) { c.AccessKey, c.SecretKey, c.SessionToken = "", "", "x" },
		"Addressing":     func(c *Config) { c.Addressing = "dns" },
		"PartSize":       func(c *Config) { c.PartSize = 1 << 20 },
		"Concurrency":    func(c *Config) { c.Concurrency = -1 },
		"ReadCache":      func(c *Config) { c.ReadCache = 1 },
		"StallTimeout":   func(c *Config) { c.StallTimeout = -1 },
	} {
		c := good
		change(&c)
		if err := c.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestOpenRefused makes typical mistakes of operators on a real server.
func TestOpenRefused(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	good := configFor(server)
	good.Retry = retry.Objects.WithTimeLimit(100 * time.Millisecond)
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"key":         {func(c *Config) { c.AccessKey = "nobody" }, "correct AccessKey"},
		"secret":      {func(c *Config) { c.SecretKey = "wrong" }, "SecretKey does not belong to AccessKey"},
		"bucket":      {func(c *Config) { c.Bucket = "none" }, "bucket none does not exist"},
		"unreachable": {func(c *Config) { c.Endpoint = "http://127.0.0.1:1" }, "correct Endpoint"},
		"tls":         {func(c *Config) { c.Endpoint = strings.Replace(c.Endpoint, "http:", "https:", 1) }, "write http://"},
		"region":      {func(c *Config) { c.Region = "mars-west-1" }, "correct Region"},
	} {
		c := good
		tt.change(&c)
		b, err := Open(t.Context(), c)
		if err == nil {
			_ = b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), c.SecretKey) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestOpenAnswers sends answers that the real server cannot be made to send.
func TestOpenAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		operation, code string
		want            string
	}{
		"clock":       {"ListObjectsV2", "RequestTimeTooSkewed", "set both by NTP"},
		"elsewhere":   {"ListObjectsV2", "PermanentRedirect", "correct Region"},
		"no list":     {"ListObjectsV2", codeAccessDenied, "list objects: the key has no permission for this"},
		"no uploads":  {"ListMultipartUploads", codeAccessDenied, "list unfinished uploads: the key has no permission"},
		"no write":    {"PutObject", codeAccessDenied, "write an object: the key has no permission"},
		"no read":     {"GetObject", codeAccessDenied, "read an object: the key has no permission"},
		"no parts":    {"CreateMultipartUpload", codeAccessDenied, "start an upload in parts: the key has no permission"},
		"no delete":   {"DeleteObject", codeAccessDenied, "delete an object: the key has no permission"},
		"no location": {"GetBucketLocation", "InvalidAccessKeyId", "correct AccessKey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stored []byte
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch o := operation(r); {
				case o == tt.operation:
					refusal(http.StatusForbidden, tt.code)(w, r, nil)
				case o == "PutObject":
					stored, _ = io.ReadAll(r.Body)
				case o == "GetObject":
					w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
					_, _ = w.Write(stored)
				case o == "CreateMultipartUpload":
					_, _ = io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>")
				case o == "AbortMultipartUpload":
					w.WriteHeader(http.StatusNoContent)
				case r.Method == http.MethodGet:
					_, _ = io.WriteString(w, "<Nothing/>")
				}
			}))
			defer server.Close()
			config := Config{Endpoint: server.URL, Bucket: "rows", AccessKey: "a", SecretKey: "b", Region: "us-east-1", Retry: retry.Objects}
			config.Retry.First = time.Millisecond
			if tt.operation == "GetBucketLocation" {
				config.Region = ""
			}
			_, err := Open(t.Context(), config)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestCredentials takes the key from the environment.
func TestCredentials(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	config := configFor(server)
	config.AccessKey, config.SecretKey, config.Region = "", "", ""
	b := openBucket(t, config)
	if b.config.Region != s3test.Region {
		t.Errorf("the region is %q, want the server's", b.config.Region)
	}
	// Nothing in the environment: the role of a container, whose service does
	// not exist.
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/role")
	if _, err := Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), "no credentials: set AccessKey") {
		t.Errorf("without credentials: %v", err)
	}
}

// TestNoLocation opens a bucket of a server that does not report its region:
// Alibaba OSS answers NoSuchKey (slopus/happy#569).
func TestNoLocation(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for code, status := range map[string]int{codeNoSuchKey: http.StatusNotFound, "MethodNotAllowed": http.StatusMethodNotAllowed} {
		p := newProxy(t, server.Endpoint)
		p.inject(first(1000, "GetBucketLocation", refusal(status, code)))
		config := configFor(server)
		config.Endpoint, config.Region = p.url, ""
		b := openBucket(t, config)
		if b.config.Region != s3test.Region || p.count("GetBucketLocation") == 0 {
			t.Errorf("%s: the region is %q after %d questions", code, b.config.Region, p.count("GetBucketLocation"))
		}
	}
}

// TestPublicEndpoint signs URLs for the server's public name.
func TestPublicEndpoint(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	outside := newProxy(t, server.Endpoint)
	config := configFor(server)
	config.PublicEndpoint = strings.Replace(outside.url, "127.0.0.1", "localhost", 1)
	b := openBucket(t, config)
	must.Succeed(t, put(t.Context(), b, "k", []byte("content")))
	outside.inject(nil)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		signed, err := b.SignURL(t.Context(), method, "k", "name.parquet", time.Minute)
		if err != nil || !strings.HasPrefix(signed, config.PublicEndpoint+"/") {
			t.Fatalf("signed for %s: %s, %v", config.PublicEndpoint, signed, err)
		}
		if status := fetch(t, method, signed); status != http.StatusOK {
			t.Errorf("%s at the public endpoint: status %d", method, status)
		}
		inside := strings.Replace(signed, config.PublicEndpoint, server.Endpoint, 1)
		if status := fetch(t, method, inside); status != http.StatusForbidden {
			t.Errorf("%s at another host than was signed: status %d, want 403", method, status)
		}
	}
	if n := outside.count("GetObject") + outside.count("HeadObject"); n != 2 {
		t.Errorf("%d requests came by the public endpoint, want the two of the client", n)
	}
}

func fetch(t *testing.T, method, url string) (status int) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, http.NoBody))(t)
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(r)
	must.Succeed(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

// TestMetrics counts requests by operation and outcome.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	p, b := through(t, s3test.Start(t), func(c *Config) { c.Metrics = reg })
	sent := testutil.ToFloat64(b.transport.sent)
	p.inject(first(2, "PutObject", refusal(http.StatusServiceUnavailable, "SlowDown")))
	must.Succeed(t, put(t.Context(), b, "k", make([]byte, 1000)))
	if _, err := get(t.Context(), b, "none"); err == nil {
		t.Fatal("an object exists that was not written")
	}
	for labels, want := range map[[2]string]float64{
		{"PutObject", "ok"}: 2, {"PutObject", "throttled"}: 2, {"GetObject", "not_found"}: 1, {"ListObjectsV2", "ok"}: 1, // Open makes one request
	} {
		if got := testutil.ToFloat64(b.transport.metrics.requests.WithLabelValues(labels[:]...)); got != want {
			t.Errorf("%v: %v requests, want %v", labels, got, want)
		}
	}
	if got := testutil.ToFloat64(b.transport.sent) - sent; got != 3000 {
		t.Errorf("%v bytes were sent, want 1000 in each of three tries", got)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}
