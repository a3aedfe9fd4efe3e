package s3

import (
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/blobtest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/s3test"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prefixes separates tests that share a server.
var prefixes atomic.Int64

// configFor returns a configuration with its own prefix on a server.
func configFor(s *s3test.Server) Config {
	return Config{
		Endpoint: s.Endpoint, Bucket: s.Bucket, Region: s3test.Region, AccessKey: s.AccessKey, SecretKey: s.SecretKey,
		Prefix: fmt.Sprintf("test-%d", prefixes.Add(1)),
	}
}

func openBucket(t testing.TB, config Config) *Bucket {
	t.Helper()
	b := must.Get(Open(t.Context(), config))(t)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// noUploads checks that no unfinished upload is left.
func noUploads(t testing.TB, b *Bucket) {
	t.Helper()
	if n := uploads(t, b); n != 0 {
		t.Errorf("%d unfinished uploads are left", n)
	}
}

// uploads counts the unfinished uploads under a bucket's prefix.
func uploads(t testing.TB, b *Bucket) int {
	t.Helper()
	result := must.Get(b.client.ListMultipartUploads(t.Context(), b.config.Bucket, b.config.Prefix, "", "", "", uploadsPage))(t)
	return len(result.Uploads)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	blobtest.Run(t, func(t *testing.T) blobtest.Harness {
		config := configFor(server)
		b := openBucket(t, config)
		return blobtest.Harness{
			Bucket:    b,
			Reopen:    func(t testing.TB) blob.Bucket { return openBucket(t, config) },
			Leftovers: func(t testing.TB) int { return uploads(t, b) },
			Foreign:   true,
			Unpinned:  true,
		}
	})
}
