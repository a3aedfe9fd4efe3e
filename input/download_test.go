package input_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/must"
)

const secret = "X-Signature=s3cr3t"

func downloader(t testing.TB, change func(*input.Config)) (*input.Downloader, *bytes.Buffer) {
	t.Helper()
	log := new(bytes.Buffer)
	cfg := input.Config{AllowLoopback: true, Logger: slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&cfg)
	}
	d := must.Get(input.New(cfg))(t)
	return d, log
}

func serve(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// wantFailure checks the kind of an error and that it contains no secret.
func wantFailure(t *testing.T, err error, parts ...string) {
	t.Helper()
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Code != rowmill.CodeDownloadFailed {
		t.Fatalf("got %v, want a failed download", err)
	}
	for _, part := range parts {
		if !strings.Contains(failure.Message, part) {
			t.Errorf("%q does not contain %q", failure.Message, part)
		}
	}
	forbidden := slices.ContainsFunc([]string{"metadata service", "no setting permits", "the setting inputs.allow_"}, func(reason string) bool { return strings.Contains(failure.Message, reason) })
	if forbidden && failure.AdditionalContext != "" {
		t.Errorf("the context of a forbidden address is %q, want none", failure.AdditionalContext)
	}
	if all := failure.Message + failure.AdditionalContext; strings.Contains(all, "s3cr3t") || strings.Contains(all, "hidden") {
		t.Errorf("%q contains the URL", all)
	}
}

func TestFetchCopiesOnceAndLogsTheHostOnly(t *testing.T) {
	t.Parallel()
	var gets atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		gets.Add(1)
		if r.Method != http.MethodGet || r.Header.Get("Range") != "" || r.URL.RawQuery != secret {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprint(w, strings.Repeat("a,b\n", 1000))
	})
	d, log := downloader(t, nil)
	var out bytes.Buffer
	n, err := d.Fetch(t.Context(), s.URL+"/hidden/file.csv?"+secret, &out)
	if err != nil || n != 4000 || out.Len() != 4000 || gets.Load() != 1 {
		t.Fatalf("%d bytes in %d requests, %v", n, gets.Load(), err)
	}
	if strings.Contains(log.String(), "hidden") || strings.Contains(log.String(), "s3cr3t") || !strings.Contains(log.String(), "127.0.0.1") {
		t.Errorf("log: %s", log)
	}
}

func TestFetchReportsServerFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler http.HandlerFunc
		change  func(*input.Config)
		want    []string
	}{
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, nil, []string{"403 Forbidden", "expired"}},
		"not found": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, nil, []string{"404"}},
		"an error":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, nil, []string{"503", "not repeated"}},
		"partial":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(206) }, nil, []string{"206"}},
		"web page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "\n<html>Please log in")
		}, nil, []string{"web page", "login"}},
		"truncated": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "half")
		}, nil, []string{"broke off after 4 bytes"}},
		"declared too large": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, strings.Repeat("x", 1000))
		}, func(c *input.Config) { c.MaxBytes = 999 }, []string{"more than 999 bytes"}},
		"silently too large": {func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				fmt.Fprint(w, strings.Repeat("x", 1000))
				w.(http.Flusher).Flush()
			}
		}, func(c *input.Config) { c.MaxBytes = 50_000 }, []string{"more than 50000 bytes"}},
		"endless redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		}, nil, []string{"redirects more than 5 times"}},
		"redirect to a file": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///hidden", http.StatusFound)
		}, nil, []string{"not http or https"}},
		"redirect with a password": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://hidden:s3cr3t@127.0.0.1/", http.StatusFound)
		}, nil, []string{"password"}},
		"malformed redirect": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://[::hidden/?"+secret)
			w.WriteHeader(302)
		}, nil, []string{"no valid HTTP answer"}},
		"redirect to a private address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.1.2.3/hidden", http.StatusFound)
		}, nil, []string{"allow_private_networks"}},
		"redirect to a metadata service": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/hidden", http.StatusFound)
		}, func(c *input.Config) { c.AllowPrivateNetworks = true }, []string{"metadata service", "no setting permits"}},
		"closed at once": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}, nil, []string{"closed the connection"}},
		"no header": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(c *input.Config) { c.HeaderTimeout = 20 * time.Millisecond },
			[]string{"did not answer in time"},
		},
		"stall": {func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "some")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, func(c *input.Config) { c.StallTimeout = 20 * time.Millisecond }, []string{"no bytes for 20ms"}},
		"too slow": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, "x")
				w.(http.Flusher).Flush()
			}
		}, func(c *input.Config) { c.TotalTimeout = 50 * time.Millisecond }, []string{"took more than 50ms"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.handler)
			d, log := downloader(t, test.change)
			_, err := d.Fetch(t.Context(), s.URL+"/hidden?"+secret, io.Discard)
			wantFailure(t, err, append(test.want, "127.0.0.1")...)
			if log.Len() > 0 {
				t.Errorf("an error was returned and logged: %s", log)
			}
		})
	}
}

// The reason of a refusal is often only in the body, as in S3. It must be kept
// for debugging the job, without text that may be a signature.
func TestFetch_KeepsTheReasonOfARefusal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind, body, want string
	}{
		"S3": {
			"application/xml", `<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message><Expires>2026</Expires><StringToSign>` + secret + `</StringToSign></Error>`,
			"AccessDenied: Request has expired",
		},
		"S3 without a type": {"", `<Error><Code>InvalidRequest</Code><Message>use AWS4-HMAC-SHA256</Message></Error>`, "InvalidRequest: use AWS4-HMAC-SHA256"},
		"text":              {"text/plain; charset=utf-8", "no\n such  file", "no such file"},
		"JSON":              {"application/json", `{"error":"gone"}`, `{"error":"gone"}`},
		"a web page":        {"text/html", "<html>Please log in", ""},
		"the query":         {"text/plain", "bad signature in " + secret, ""},
		"long":              {"text/plain", strings.Repeat("x", 1<<20), strings.Repeat("x", 500) + "…"},
		"nothing":           {"text/plain", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, test.body)
			})
			d, _ := downloader(t, nil)
			_, err := d.Fetch(t.Context(), s.URL+"/hidden?"+secret, io.Discard)
			var failure *rowmill.Failure
			if !errors.As(err, &failure) || failure.AdditionalContext != test.want {
				t.Errorf("%v, additional context %q, want %q", err, failure.AdditionalContext, test.want)
			}
		})
	}
}

func TestRedirectsCarryNothingAlong(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 1)
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		fmt.Fprint(w, "a\n1\n")
	})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, http.StatusFound) })
	d, _ := downloader(t, nil)
	must.Get(d.Fetch(t.Context(), s.URL+"/hidden?"+secret, io.Discard))(t)
	h := <-headers
	for _, name := range []string{"Referer", "Authorization", "Cookie"} {
		if h.Get(name) != "" {
			t.Errorf("%s was sent on: %q", name, h.Get(name))
		}
	}
}

func TestForbiddenNetworks(t *testing.T) {
	t.Parallel()
	strict, _ := downloader(t, func(c *input.Config) { c.AllowLoopback = false })
	loopback, _ := downloader(t, nil)
	for _, host := range []string{
		"10.1.2.3", "192.168.0.1", "172.16.0.1", "100.64.0.1", "0.0.0.0:9", "[fe80::1]", "[fd00::1]", "[64:ff9b::7f00:1]", "224.0.0.1", "255.255.255.255",
	} {
		_, err := strict.Fetch(t.Context(), "http://"+host+"/hidden?"+secret, io.Discard)
		wantFailure(t, err, "allow_private_networks")
	}
	for _, host := range []string{"127.0.0.1:9", "127.1.2.3", "[::1]:9", "localhost:9", "[::ffff:127.0.0.1]:9"} {
		_, err := strict.Fetch(t.Context(), "http://"+host+"/hidden?"+secret, io.Discard)
		wantFailure(t, err, "allow_loopback")
		wantContext(t, err, "")
	}
	_, err := loopback.Fetch(t.Context(), "http://10.1.2.3/", io.Discard)
	wantFailure(t, err, "allow_private_networks")
	wantContext(t, err, "")
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a\n") })
	private, _ := downloader(t, func(c *input.Config) { c.AllowLoopback, c.AllowPrivateNetworks = false, true })
	if _, err := private.Fetch(t.Context(), s.URL, io.Discard); err != nil {
		t.Errorf("private networks allowed: %v", err)
	}
}

// wantContext checks the additional context of a failed download.
func wantContext(t *testing.T, err error, want string) {
	t.Helper()
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.AdditionalContext != want {
		t.Errorf("got %+v, want the context %q", failure, want)
	}
}

func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	l.Close()
	d, _ := downloader(t, nil)
	_, err = d.Fetch(t.Context(), "http://"+l.Addr().String()+"/hidden?"+secret, io.Discard)
	wantFailure(t, err, "connection refused")
	wantContext(t, err, "dial tcp "+l.Addr().String()+": connect: connection refused")
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	d, _ := downloader(t, nil)
	_, err := d.Fetch(t.Context(), s.URL+"/hidden?"+secret, io.Discard)
	wantFailure(t, err, "certificate")
	wantContext(t, err, "tls: failed to verify certificate: x509: certificate signed by unknown authority")
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, err = d.Fetch(t.Context(), strings.Replace(plain.URL, "http:", "https:", 1)+"/hidden?"+secret, io.Discard)
	wantFailure(t, err, "does not speak TLS")
	wantContext(t, err, "")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestErrorsOfTheWriterAndTheCallerAreNotFailures(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "some")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	d, _ := downloader(t, nil)
	var failure *rowmill.Failure
	if _, err := d.Fetch(t.Context(), s.URL, fullDisk{}); !errors.Is(err, syscall.ENOSPC) || errors.As(err, &failure) {
		t.Errorf("full disk: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := d.Fetch(ctx, s.URL, writerFunc(cancel)); !errors.Is(err, context.Canceled) || errors.As(err, &failure) {
		t.Errorf("cancelled: got %v", err)
	}
}

// writerFunc is called on each write.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	for _, cfg := range []input.Config{{}, {MaxBytes: -1, Logger: log}, {MaxRedirects: -1, Logger: log}, {StallTimeout: -1, Logger: log}} {
		if _, err := input.New(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestValidateURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://example.com/a.csv?" + secret:              "",
		"http://127.0.0.1:8000/a":                          "",
		"HTTPS://EXAMPLE.COM":                              "",
		"https://[2001:db8::1]:443/x":                      "",
		"s3://hidden/key":                                  "presigned",
		"ftp://hidden/x":                                   "http or https",
		"hidden/file.csv":                                  "not a URL",
		"https://user:s3cr3t@example.com/":                 "user name or password",
		"https:///hidden":                                  "no host",
		"https://example.com:0/":                           "port",
		"https://example.com:99999/":                       "port",
		"https://exa mple.com/hidden":                      "spaces",
		"https://example.com/hidden\n":                     "spaces or control",
		"http://[::hidden/?" + secret:                      "can be parsed",
		"https://example.com/" + strings.Repeat("x", 9000): "more than 8192",
		"":            "not a URL",
		"http:hidden": "no host",
	} {
		err := input.ValidateURL(raw)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", raw, err, want)
		case err != nil && (strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "s3cr3t")):
			t.Errorf("%q: %v contains the URL", raw, err)
		}
	}
}

func TestFetchOfAnEmptyFileIsAnInvalidInput(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	d, err := input.New(input.Config{AllowLoopback: true, Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	_, err = d.Fetch(t.Context(), server.URL, io.Discard)
	var failure *rowmill.Failure
	if !errors.As(err, &failure) || failure.Code != rowmill.CodeInvalidInputFile {
		t.Errorf("got %v, want code %s", err, rowmill.CodeInvalidInputFile)
	}
}
