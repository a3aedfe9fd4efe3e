package s3

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

// If the server refuses a call only after the start, the work must be done in
// another way, and the server must not be asked again.
func TestRefusedLater(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for name, refusal := range map[string]fault{
		"not implemented":           refusal(http.StatusNotImplemented, "NotImplemented"),
		"not allowed":               refusal(http.StatusMethodNotAllowed, "MethodNotAllowed"),
		"invalid request":           refusal(http.StatusBadRequest, "InvalidRequest"),
		"not implemented, with 403": refusal(http.StatusForbidden, "NotImplemented"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p, b := through(t, server, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			if found := b.Limits(); len(found) != 0 || log.Len() > 0 {
				t.Fatalf("at the start: %+v\n%s", found, &log)
			}
			lacking := []string{copyObject, "DeleteObjects", "ListMultipartUploads"}
			p.inject(func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
				for _, lacks := range lacking {
					if operation(r) == lacks {
						return refusal(w, r, forward)
					}
				}
				return false
			})
			for range 2 {
				must.Succeed(t, put(t.Context(), b, "a/k", []byte("content")))
				must.Succeed(t, b.Copy(t.Context(), "a/k", "a/copy"))
				if got, err := get(t.Context(), b, "a/copy"); err != nil || string(got) != "content" {
					t.Fatalf("the copy holds %q, %v", got, err)
				}
				must.Succeed(t, b.DeletePrefix(t.Context(), "a/"))
				if infos, err := b.List(t.Context(), ""); err != nil || len(infos) != 0 {
					t.Fatalf("after the deletion: %d objects, %v", len(infos), err)
				}
			}
			for _, operation := range lacking {
				if n := p.count(operation); n != 1 {
					t.Errorf("%d requests for %s, want the one that was refused", n, operation)
				}
			}
			if found := b.Limits(); len(found) != 3 || strings.Count(log.String(), "does not support all calls of S3") != 3 {
				t.Errorf("found: %+v\n%s", found, &log)
			}
		})
	}
}

// Damaged bodies, throttling and missing permissions are not limits of the
// server.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for name, transientFault := range map[string]fault{
		"throttled": refusal(http.StatusServiceUnavailable, "SlowDown"),
		"damaged":   refusal(http.StatusBadRequest, "BadDigest"),
		"lost":      lostAnswer,
		"expired":   refusal(http.StatusBadRequest, "ExpiredToken"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := through(t, server, nil)
			p.inject(all([]fault{first(1, copyObject, transientFault), first(1, "DeleteObjects", transientFault), first(1, "ListMultipartUploads", transientFault)}))
			must.Succeed(t, put(t.Context(), b, "a/k", []byte("content")))
			must.Succeed(t, b.Copy(t.Context(), "a/k", "a/copy"))
			must.Succeed(t, b.DeletePrefix(t.Context(), "a/"))
			if found := b.Limits(); len(found) != 0 {
				t.Errorf("found: %+v", found)
			}
		})
	}
}

// The start must log in one line what the server does not support, and warn if
// the operator must change a setting.
func TestOpenLogsLimits(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	for operation, want := range map[string][]string{
		copyObject:             {"level=INFO", "CopyObject", "UploadPartCopy"},
		"DeleteObjects":        {"level=INFO", "DeleteObjects"},
		"ListMultipartUploads": {"level=WARN", "ListMultipartUploads", "lifecycle rule"},
	} {
		p := newProxy(t, server.Endpoint)
		p.inject(first(1000, operation, refusal(http.StatusNotImplemented, "NotImplemented")))
		var log bytes.Buffer
		config := configFor(server)
		config.Endpoint, config.Logger = p.url, slog.New(slog.NewTextHandler(&log, nil))
		b := openBucket(t, config)
		for _, text := range want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("without %s there is no %q in:\n%s", operation, text, &log)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("without %s the start tells %d lines, want one:\n%s", operation, n, &log)
		}
		if infos, err := b.List(t.Context(), ""); err != nil || len(infos) != 0 || uploads(t, openBucket(t, configFor(server))) != 0 {
			t.Errorf("without %s the start has left something: %v, %v", operation, infos, err)
		}
	}
}

// If parts must have equal lengths, 10,000 parts must be enough for an object
// of any size, and the parts must not be longer than necessary. Otherwise
// Config.PartSize applies.
func TestExpect(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	for name, c := range map[string]struct {
		size          int64
		copies, alone int64 // length of parts, if the server copies parts and if it does not
	}{
		"nothing":  {0, 5 * mib, 16 * mib},
		"small":    {80 * mib, 5 * mib, 16 * mib},
		"10 GiB":   {10 * gib, 10 * gib / 1000, 16 * mib},
		"100 GiB":  {100 * gib, 16 * mib, 16 * mib},
		"1 TiB":    {1024 * gib, 1024*gib/9000 + 1, 1024*gib/9000 + 1},
		"too much": {1 << 50, maxPartSize, maxPartSize},
	} {
		b := &Bucket{config: Config{}.WithDefaults()}
		length := func() int64 {
			w := &writer{bucket: b, partLength: b.config.PartSize}
			w.Expect(c.size)
			return w.partLength
		}
		if got := length(); got != c.alone {
			t.Errorf("%s, while nothing is known: parts of %d bytes, want %d", name, got, c.alone)
		}
		b.limits.add(mixedParts, errWrongAnswer)
		if got := length(); got != c.copies {
			t.Errorf("%s: parts of %d bytes, want %d", name, got, c.copies)
		}
		b.limits.add(copyParts, errWrongAnswer)
		if got := length(); got != c.alone {
			t.Errorf("%s, without copies: parts of %d bytes, want %d", name, got, c.alone)
		}
		b.mixed.Store(mixedAccepted)
		if got := length(); got != b.config.PartSize {
			t.Errorf("%s, with parts of several lengths: parts of %d bytes", name, got)
		}
	}
}
