package s3

import (
	"testing"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/rowmill/rowmill/internal/must"
)

func TestSetKeys(t *testing.T) {
	t.Parallel()
	b := &Bucket{config: Config{AccessKey: "a", SecretKey: "b"}.WithDefaults()}
	b.keys = b.credentials()
	is := func(access, secret string) {
		t.Helper()
		if got, err := b.keys.GetWithContext(&credentials.CredContext{}); err != nil || got.AccessKeyID != access || got.SecretAccessKey != secret {
			t.Errorf("got %s, %v, want %s", got.AccessKeyID, err, access)
		}
	}
	is("a", "b")
	must.Succeed(t, b.SetKeys("c", "d"))
	is("c", "d")
	if err := b.SetKeys("", ""); err == nil {
		t.Error("no keys are accepted")
	}
	if err := new(Bucket).SetKeys("c", "d"); err == nil {
		t.Error("keys are accepted although the machine has keys")
	}
}
