package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/internal/s3test"
)

// random returns n bytes that do not compress.
func random(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(out) // never fails
	return out
}

func put(ctx context.Context, b blob.Bucket, key string, content []byte) error {
	w, err := b.Create(ctx, key, "")
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(content); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}

func get(ctx context.Context, b blob.Bucket, key string) ([]byte, error) {
	o, err := b.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(blob.NewReader(o))
	return content, errors.Join(err, o.Close())
}

// waitFor polls until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// through opens a bucket behind a proxy, with short retry pauses.
func through(t *testing.T, server *s3test.Server, change func(*Config)) (*proxy, *Bucket) {
	t.Helper()
	p := newProxy(t, server.Endpoint)
	config := configFor(server)
	config.Endpoint = p.url
	config.PartSize = minPartSize
	config.Retry = retry.Objects
	config.Retry.First = time.Millisecond
	if change != nil {
		change(&config)
	}
	return p, openBucket(t, config)
}

// TestFaults makes requests fail in every way that the bucket must tolerate.
// The bytes read must always equal the bytes written.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	content := random(2*minPartSize + 12345)
	for name, tt := range map[string]struct {
		operation string
		fault     fault
	}{
		"throttled put":             {"PutObject", refusal(http.StatusServiceUnavailable, "SlowDown")},
		"throttled part":            {"UploadPart", refusal(http.StatusTooManyRequests, "TooManyRequests")},
		"part fails":                {"UploadPart", refusal(http.StatusInternalServerError, "InternalError")},
		"part damaged on its way":   {"UploadPart", refusal(http.StatusBadRequest, "XAmzContentSHA256Mismatch")},
		"upload's start lost":       {"CreateMultipartUpload", lostAnswer},
		"part's answer lost":        {"UploadPart", lostAnswer},
		"put's answer lost":         {"PutObject", lostAnswer},
		"completion's answer lost":  {completeUpload, lostAnswer},
		"completion fails with 200": {completeUpload, refusal(http.StatusOK, "InternalError")},
		"get fails":                 {"GetObject", refusal(http.StatusBadGateway, "BadGateway")},
		"get cut off at its start":  {"GetObject", cut(1)},
		"get cut off":               {"GetObject", cut(100_000)},
		"get shortened":             {"GetObject", shortened(100_000)},
		"get is silent":             {"GetObject", silence},
		"part is silent":            {"UploadPart", silence},
		"head fails":                {"HeadObject", refusal(http.StatusServiceUnavailable, "")},
		"listing cut off":           {"ListObjectsV2", cut(200)},
		"batch delete fails":        {"DeleteObjects", refusal(http.StatusInternalServerError, "InternalError")},
		"batch delete's answer":     {"DeleteObjects", lostAnswer},
		"delete's answer lost":      {"DeleteObject", lostAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, b := through(t, server, func(c *Config) {
				// A short timeout also ends requests that a busy server answers late. The
				// server may then start an upload after its removal.
				if strings.HasSuffix(name, "is silent") {
					c.StallTimeout = 3 * time.Second
				}
			})
			var met atomic.Int32
			p.inject(first(2, tt.operation, func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
				met.Add(1)
				return tt.fault(w, r, forward)
			}))
			for key, want := range map[string][]byte{"a/big": content, "a/small": content[:1_000_000], "a/empty": nil} {
				if err := put(t.Context(), b, key, want); err != nil {
					t.Fatalf("put %s: %v", key, err)
				}
				got, err := get(t.Context(), b, key)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("get %s: %d bytes of %d, %v", key, len(got), len(want), err)
				}
				if info, err := b.Stat(t.Context(), key); err != nil || info.Size != int64(len(want)) {
					t.Errorf("stat %s: %+v, %v", key, info, err)
				}
			}
			if infos, err := b.List(t.Context(), "a/"); err != nil || len(infos) != 3 {
				t.Errorf("list: %d objects, %v", len(infos), err)
			}
			must.Succeed(t, b.Delete(t.Context(), "a/small"))
			must.Succeed(t, b.DeletePrefix(t.Context(), "a/"))
			if infos, err := b.List(t.Context(), ""); err != nil || len(infos) != 0 {
				t.Errorf("after the deletion: %d objects, %v", len(infos), err)
			}
			noUploads(t, b)
			if met.Load() == 0 {
				t.Error("the fault did not occur")
			}
		})
	}
}

// TestLastingFaults makes requests fail for longer than the retries last.
func TestLastingFaults(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	p, b := through(t, server, func(c *Config) {
		c.StallTimeout = 2 * time.Second
		c.Retry.For = 300 * time.Millisecond
	})
	content := random(1_000_000)
	must.Succeed(t, put(t.Context(), b, "k", content))
	for name, tt := range map[string]struct {
		fault fault
		want  func(error) bool
	}{
		"always cut off": {cut(100_000), func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"always short":   {shortened(100_000), func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		"silent":         {silence, func(err error) bool { return errors.As(err, &stalledError{}) }},
		"refused":        {refusal(http.StatusForbidden, codeAccessDenied), func(err error) bool { return errorCode(err) == codeAccessDenied }},
		"no bucket":      {refusal(http.StatusNotFound, codeNoSuchBucket), func(err error) bool { return !errors.Is(err, rowmill.ErrNotFound) }},
		"no object":      {refusal(http.StatusNotFound, "NoSuchKey"), func(err error) bool { return errors.Is(err, rowmill.ErrNotFound) }},
	} {
		p.inject(first(1000, "GetObject", tt.fault))
		if got, err := get(t.Context(), b, "k"); err == nil || !tt.want(err) {
			t.Errorf("%s: read %d bytes, %v", name, len(got), err)
		}
	}
	p.inject(nil)
	if got, err := get(t.Context(), b, "k"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("afterwards: %d bytes, %v", len(got), err)
	}
}

// TestSlowServer reads from a server that is slow but sends data, for longer
// than the stall timeout.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	const stall = 3 * time.Second
	p, b := through(t, s3test.Start(t), func(c *Config) { c.StallTimeout = stall; c.Retry = retry.Policy{Tries: 1} })
	content := random(200_000)
	must.Succeed(t, put(t.Context(), b, "k", content))
	p.inject(drip(10_000, stall/10))
	began := time.Now()
	got, err := get(t.Context(), b, "k")
	if took := time.Since(began); err != nil || !bytes.Equal(got, content) || took < stall {
		t.Errorf("after %v: %d bytes, %v", took, len(got), err)
	}
}

// TestKilledServer kills the server during an upload, and again during a read.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	p, b := through(t, server, nil)
	content := random(6*minPartSize + 1)
	// during kills the server, calls do, and restarts the server after some
	// requests were refused.
	during := func(operation string, do func() error) {
		t.Helper()
		server.Kill()
		p.inject(nil)
		done := make(chan error, 1)
		go func() { done <- do() }()
		waitFor(t, operation+" is tried again", func() bool { return p.count(operation) > 2 })
		must.Succeed(t, server.Restart(t.Context()))
		if err := <-done; err != nil {
			t.Errorf("%s over a restart: %v", operation, err)
		}
	}
	w, err := b.Create(t.Context(), "k", "")
	must.Succeed(t, err)
	defer w.Abort()
	_, err = w.Write(content[:2*minPartSize+1])
	must.Succeed(t, err)
	during("UploadPart", func() error { _, err := w.Write(content[2*minPartSize+1:]); return err })
	during("UploadPart", func() error { _, err := w.Commit(); return err }) // the last part
	var o blob.Object
	if o, err = b.Open(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	got := make([]byte, len(content))
	during("GetObject", func() error { _, err := o.ReadAt(got, 0); return err })
	if !bytes.Equal(got, content) {
		t.Error("other bytes were read than written")
	}
	noUploads(t, b)
}

// TestDeadProcess finds the upload of a process that was killed during the
// upload.
func TestDeadProcess(t *testing.T) {
	t.Parallel()
	config := configFor(s3test.Start(t))
	config.PartSize = minPartSize
	dead, alive := openBucket(t, config), openBucket(t, config)
	w := must.Get(dead.Create(t.Context(), "j/1/k", ""))(t)
	defer w.Abort()
	must.Get(w.Write(random(minPartSize + 1)))(t)
	// Wait for the part: a dead process sends nothing.
	waitFor(t, "the part has arrived", func() bool {
		parts, err := alive.client.ListObjectParts(t.Context(), config.Bucket, alive.name("j/1/k"), w.(*writer).upload, 0, 10)
		return err == nil && len(parts.ObjectParts) == 1
	})
	must.Succeed(t, alive.DeletePrefix(t.Context(), "j/1/"))
	noUploads(t, alive)
	if _, err := w.Commit(); err == nil {
		t.Error("a cancelled upload is committed")
	}
	if infos, err := alive.List(t.Context(), ""); err != nil || len(infos) != 0 {
		t.Errorf("%d objects, %v", len(infos), err)
	}
}

// TestCancel cancels calls that wait for a silent server.
func TestCancel(t *testing.T) {
	t.Parallel()
	p, b := through(t, s3test.Start(t), nil)
	content := random(2*minPartSize + 1)
	must.Succeed(t, put(t.Context(), b, "k", content))
	for operation, do := range map[string]func(context.Context) error{
		"PutObject":             func(ctx context.Context) error { return put(ctx, b, "new", content[:100]) },
		"CreateMultipartUpload": func(ctx context.Context) error { return put(ctx, b, "new", content) },
		"UploadPart":            func(ctx context.Context) error { return put(ctx, b, "new", content) },
		completeUpload:          func(ctx context.Context) error { return put(ctx, b, "new", content) },
		"GetObject":             func(ctx context.Context) error { _, err := get(ctx, b, "k"); return err },
		"HeadObject":            func(ctx context.Context) error { _, err := b.Stat(ctx, "k"); return err },
		"ListObjectsV2":         func(ctx context.Context) error { _, err := b.List(ctx, ""); return err },
		"DeleteObject":          func(ctx context.Context) error { return b.Delete(ctx, "k") },
		"ListMultipartUploads":  func(ctx context.Context) error { return b.DeletePrefix(ctx, "a/") },
	} {
		p.inject(first(1000, operation, silence))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- do(ctx) }()
		waitFor(t, operation+" arrives", func() bool { return p.count(operation) > 0 })
		began := time.Now()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || time.Since(began) > 5*time.Second {
			t.Errorf("%s ends after %v with %v", operation, time.Since(began), err)
		}
	}
	p.inject(nil)
	noUploads(t, b)
	if got, err := get(t.Context(), b, "k"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("afterwards: %d bytes, %v", len(got), err)
	}
}

// TestUnreachable checks that calls to an unreachable server end after the
// configured time.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	config := configFor(server)
	config.Retry, config.AbortTimeout = retry.Objects.WithTimeLimit(200*time.Millisecond), 100*time.Millisecond
	config.PartSize = minPartSize
	b := openBucket(t, config)
	w := must.Get(b.Create(t.Context(), "k", ""))(t)
	must.Get(w.Write(random(minPartSize + 1)))(t)
	server.Kill()
	began := time.Now()
	if _, err := b.Stat(t.Context(), "k"); !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("stat: %v", err)
	}
	if _, err := w.Commit(); !errors.Is(err, rowmill.ErrUnavailable) {
		t.Errorf("commit: %v", err)
	}
	if took := time.Since(began); took > 20*time.Second { // one call with the default settings would take longer
		t.Errorf("giving up twice took %v", took)
	}
}

// TestTooLong writes more parts than S3 accepts.
func TestTooLong(t *testing.T) {
	t.Parallel()
	_, b := through(t, s3test.Start(t), nil)
	w := must.Get(b.Create(t.Context(), "k", ""))(t)
	w.(*writer).lastPart = maxParts // as if so many parts were sent
	if _, err := w.Write(random(minPartSize + 1)); err == nil || !strings.Contains(err.Error(), "larger PartSize") {
		t.Errorf("write: %v", err)
	}
	if _, err := w.Commit(); err == nil || !strings.Contains(err.Error(), "larger PartSize") {
		t.Errorf("commit: %v", err)
	}
	noUploads(t, b)
}
