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
)

// TestTry measures repetitions on a clock of their own.
func TestTry(t *testing.T) {
	t.Parallel()
	throttled := minio.ErrorResponse{StatusCode: 503, Code: "SlowDown"}
	for name, tt := range map[string]struct {
		err      error
		failures int // before a success
		least    int // calls
		most     int
		within   time.Duration
		told     int // lines in the log
	}{
		"success at once":   {nil, 0, 1, 1, 0, 0},
		"one throttled":     {throttled, 1, 2, 2, 100 * time.Millisecond, 0},
		"five connections":  {errors.New("connection refused"), 5, 6, 6, 3100 * time.Millisecond, 0},
		"eight connections": {errors.New("connection refused"), 8, 9, 9, 13 * time.Second, 2},
		"for good":          {throttled, 1000, 12, 24, 30 * time.Second, 1},
		"refused":           {minio.ErrorResponse{StatusCode: 403, Code: codeAccessDenied}, 1000, 1, 1, 0, 0},
		"not there":         {minio.ErrorResponse{StatusCode: 404, Code: "NoSuchKey"}, 1000, 1, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				b := &Bucket{config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.WithDefaults()}
				began, calls := time.Now(), 0
				err := b.try(t.Context(), func(context.Context) error {
					if calls++; calls > tt.failures {
						return nil
					}
					return tt.err
				})
				if got := calls > tt.failures; got != (err == nil) {
					t.Errorf("it ended with %v after %d calls", err, calls)
				}
				if away := name == "for good"; errors.Is(err, rowmill.ErrUnavailable) != away {
					t.Errorf("it ended with %v, is it that the server is away: %t", err, away)
				}
				if took := time.Since(began); calls < tt.least || calls > tt.most || took > tt.within {
					t.Errorf("%d calls in %v, want %d to %d within %v", calls, took, tt.least, tt.most, tt.within)
				}
				if told := strings.Count(log.String(), "\n"); told != tt.told {
					t.Errorf("an operator was told %d times, want %d:\n%s", told, tt.told, log.String())
				}
			})
		})
	}
}

// TestTranslate keeps apart what callers must not confuse.
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
