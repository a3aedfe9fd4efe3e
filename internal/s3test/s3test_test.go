package s3test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/rowmill/rowmill/internal/must"
)

// TestRestart kills a server and finds bucket and address again.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client := must.Get(minio.New(s.address(), &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: Region, MaxRetries: 1,
	}))(t)
	if there, err := client.BucketExists(t.Context(), s.Bucket); err != nil || !there {
		t.Fatalf("the bucket: %v, %v", there, err)
	}
	s.Kill()
	if _, err := client.BucketExists(t.Context(), s.Bucket); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed server answers %v, want a refused connection", err)
	}
	must.Succeed(t, s.Restart(t.Context()))
	if there, err := client.BucketExists(t.Context(), s.Bucket); err != nil || !there {
		t.Errorf("after a restart the bucket: %v, %v", there, err)
	}
}
