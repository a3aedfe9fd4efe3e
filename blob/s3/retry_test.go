package s3

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/internal/retry"
)

// TestTry measures retries with a fake clock.
func TestTry(t *testing.T) {
	t.Parallel()
	throttled := minio.ErrorResponse{StatusCode: 503, Code: "SlowDown"}
	for name, tt := range map[string]struct {
		err      error
		failures int // before a success
		least    int // calls
		most     int
		within   time.Duration
		logged   int // lines in the log
	}{
		"success at once":   {nil, 0, 1, 1, 0, 0},
		"one throttled":     {throttled, 1, 2, 2, 100 * time.Millisecond, 0},
		"five connections":  {errors.New("connection refused"), 5, 6, 6, 3100 * time.Millisecond, 0},
		"seven connections": {errors.New("connection refused"), 7, 8, 8, 10 * time.Second, 2},
		"for good":          {throttled, 1000, 7, 12, 10 * time.Second, 1},
		"refused":           {minio.ErrorResponse{StatusCode: 403, Code: codeAccessDenied}, 1000, 1, 1, 0, 0},
		"not there":         {minio.ErrorResponse{StatusCode: 404, Code: "NoSuchKey"}, 1000, 1, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				b := &Bucket{config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.WithDefaults()}
				began, calls := time.Now(), 0
				err := b.retryCall(t.Context(), func(context.Context) error {
					if calls++; calls > tt.failures {
						return nil
					}
					return tt.err
				})
				if got := calls > tt.failures; got != (err == nil) {
					t.Errorf("it ended with %v after %d calls", err, calls)
				}
				if away := name == "for good" || name == "refused"; errors.Is(err, rowmill.ErrUnavailable) != away {
					t.Errorf("it ended with %v; server not reachable: %t", err, away)
				}
				if took := time.Since(began); calls < tt.least || calls > tt.most || took > tt.within {
					t.Errorf("%d calls in %v, want %d to %d within %v", calls, took, tt.least, tt.most, tt.within)
				}
				if logged := strings.Count(log.String(), "\n"); logged != tt.logged {
					t.Errorf("%d lines were logged, want %d:\n%s", logged, tt.logged, log.String())
				}
			})
		})
	}
}

// With a patient context, calls must outlast ten minutes of throttling, keys
// that are first changed on one side, and a server without space. With another
// context, they must stay different from faults of the request.
func TestTry_Patiently(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err        error
		away, full bool
	}{
		"throttled":       {minio.ErrorResponse{StatusCode: 503, Code: "SlowDown"}, true, false},
		"rotated keys":    {minio.ErrorResponse{StatusCode: 403, Code: "InvalidAccessKeyId"}, true, false},
		"expired token":   {minio.ErrorResponse{StatusCode: 400, Code: "ExpiredToken"}, true, false},
		"no bucket":       {minio.ErrorResponse{StatusCode: 404, Code: codeNoSuchBucket}, true, false},
		"no room":         {minio.ErrorResponse{StatusCode: 507, Code: "XMinioStorageFull"}, true, true},
		"a bad request":   {minio.ErrorResponse{StatusCode: 400, Code: "InvalidArgument"}, false, false},
		"another version": {minio.ErrorResponse{StatusCode: 412, Code: "PreconditionFailed"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := &Bucket{config: Config{}.WithDefaults()}
				err := b.retryCall(t.Context(), func(context.Context) error { return tt.err })
				if errors.Is(err, rowmill.ErrUnavailable) != tt.away || errors.Is(err, rowmill.ErrFull) != tt.full {
					t.Errorf("it ended with %v", err)
				}
				began, reports := time.Now(), 0
				err = b.retryCall(retry.WithUnlimited(t.Context(), func(error) { reports++ }), func(context.Context) error {
					if time.Since(began) < 10*time.Minute {
						return tt.err
					}
					return nil
				})
				if (err == nil) != tt.away || (reports > 0) != tt.away {
					t.Errorf("patiently it ended with %v after %v, reported %d times", err, time.Since(began), reports)
				}
			})
		})
	}
}

// TestTranslate checks that different errors stay different.
func TestTranslate(t *testing.T) {
	t.Parallel()
	b := &Bucket{config: Config{Bucket: "rows"}.WithDefaults()}
	for code, missing := range map[string]bool{"NoSuchKey": true, codeNoSuchBucket: false, codeNoSuchUpload: false, "InvalidAccessKeyId": false} {
		err := b.translate(minio.ErrorResponse{StatusCode: 404, Code: code})
		if errors.Is(err, rowmill.ErrNotFound) != missing {
			t.Errorf("404 with %s is %v", code, err)
		}
	}
}
