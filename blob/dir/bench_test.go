package dir

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/rowmill/rowmill/blob"
)

// The sizes are typical for a part and for a shard, with and without syncs.
func BenchmarkPut(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20} {
		for _, noSync := range []bool{false, true} {
			b.Run(fmt.Sprintf("size=%d/sync=%v", size, !noSync), func(b *testing.B) {
				bucket := openBucket(b, Config{Root: b.TempDir(), NoSync: noSync})
				content := make([]byte, size)
				b.SetBytes(int64(size))
				i := 0
				for b.Loop() {
					mustPut(b, bucket, fmt.Sprintf("jobs/1/parts/%d", i%64), content)
					i++
				}
			})
		}
	}
}

func BenchmarkGet(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		bucket := openBucket(b, Config{Root: b.TempDir(), NoSync: true, Keys: loadKeys(b, newValues()), PublicURL: "http://127.0.0.1:1"})
		mustPut(b, bucket, "k", make([]byte, size))
		b.Run(fmt.Sprintf("open/size=%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			buffer := make([]byte, size)
			for b.Loop() {
				o, err := bucket.Open(b.Context(), "k")
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(blob.NewReader(o), buffer); err != nil {
					b.Fatal(err)
				}
				if err := o.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("http/size=%d", size), func(b *testing.B) {
			base := serve(b, func() *Bucket { return bucket })
			if err := bucket.SetPublicURL(base); err != nil {
				b.Fatal(err)
			}
			bucket.config.Clock = time.Now
			u := mustSign(b, bucket, http.MethodGet, "k", time.Hour)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			b.SetBytes(int64(size))
			for b.Loop() {
				response, err := client.Get(u)
				if err != nil {
					b.Fatal(err)
				}
				n, err := io.Copy(io.Discard, response.Body)
				if err != nil || n != int64(size) || response.Body.Close() != nil {
					b.Fatalf("%d bytes, %v", n, err)
				}
			}
		})
	}
}

// The job has many parts.
func BenchmarkList(b *testing.B) {
	bucket := openBucket(b, Config{Root: b.TempDir(), NoSync: true})
	for i := range 30_000 {
		mustPut(b, bucket, fmt.Sprintf("jobs/1/parts/%d", i), nil)
	}
	for b.Loop() {
		if infos, err := bucket.List(b.Context(), "jobs/1/"); err != nil || len(infos) != 30_000 {
			b.Fatalf("%d objects, %v", len(infos), err)
		}
	}
}
