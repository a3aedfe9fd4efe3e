package s3

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/blobtest"
	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/retry"
	"github.com/rowmill/rowmill/internal/s3test"
)

// quirk is a difference between another store and Amazon's.
type quirk struct {
	name   string
	report string // a public report of the quirk
	lacks  []int  // the limits that the start finds
	large  bool   // it matters for copies of ranges, which Append of the suite tests
	faults func(t *testing.T, server *s3test.Server) fault
}

// quirks are differences of real stores, each from a public report.
var quirks = []quirk{
	{
		name: "parts of equal length", report: "Cloudflare R2: apache/opendal#2904; a last part that is longer: cloudflare/cloudflare-docs#9549",
		large:  true,
		faults: func(*testing.T, *s3test.Server) fault { return equalParts() },
	},
	{
		name: "no multi-object delete", report: "Google Cloud Storage, status 400: supabase/storage#898, minio/mc#4778",
		lacks:  []int{deleteMany},
		faults: refuses400("DeleteObjects", "NotImplemented"),
	},
	{
		name: "multi-object delete is taken for another call", report: "Google Cloud Storage: minio/mc#2398",
		lacks:  []int{deleteMany},
		faults: refuses400("DeleteObjects", "InvalidArgument"),
	},
	{
		name: "no copies of objects", report: "Storj, Cortx, Fujifilm's store: rclone/rclone#5595, Seagate/cortx-s3server#863, irods/irods_resource_plugin_s3#1996",
		lacks: []int{copyObjects},
		faults: func(*testing.T, *s3test.Server) fault {
			return when(isCopyObject, refusal(http.StatusNotImplemented, "NotImplemented"))
		},
	},
	{
		name: "no copies of parts", report: "Storj, and MinIO before Azure: storj/roadmap#40, minio/minio#7042",
		lacks: []int{copyParts}, large: true,
		faults: func(*testing.T, *s3test.Server) fault {
			return when(isCopyPart, refusal(http.StatusNotImplemented, "NotImplemented"))
		},
	},
	{
		name: "copies of whole objects as parts only", report: "Storj: storj/roadmap#76",
		lacks: []int{copyParts}, large: true,
		faults: func(*testing.T, *s3test.Server) fault {
			return when(func(r *http.Request) bool {
				return isCopyPart(r) && r.Header.Get("X-Amz-Copy-Source-Range") != ""
			}, refusal(http.StatusBadRequest, "InvalidArgument"))
		},
	},
	{
		name: "conditions of copies are ignored", report: "R2 names x-amz-copy-source-if-match as not implemented: cloudflare/cloudflare-docs#32458",
		lacks: []int{copyVersions}, large: true,
		faults: copiesAnyVersion,
	},
	{
		name: "conditions of copies are refused", report: "the same page",
		lacks: []int{copyVersions}, large: true,
		faults: func(*testing.T, *s3test.Server) fault {
			return when(func(r *http.Request) bool { return r.Header.Get("X-Amz-Copy-Source-If-Match") != "" }, refusal(http.StatusNotImplemented, "NotImplemented"))
		},
	},
	{
		name: "copies of parts answer without an ETag", report: "s3rver: jamhall/s3rver#436",
		lacks: []int{copyParts}, large: true,
		faults: func(*testing.T, *s3test.Server) fault { return when(isCopyPart, answers("<CopyPartResult/>")) },
	},
	{
		name: "a copy is stored as an upload without bytes", report: "versity/versitygw#1388; an empty answer: aws/aws-sdk-go#3291",
		lacks: []int{copyObjects, copyParts}, large: true,
		faults: func(*testing.T, *s3test.Server) fault { return when(isCopy, answers("")) },
	},
	{
		name: "every third copy fails with status 200", report: "minio/minio-go#2305, boto/botocore#298",
		large: true,
		faults: func(*testing.T, *s3test.Server) fault {
			return nth(3, isCopy, answers("<Error><Code>InternalError</Code><Message>failed</Message></Error>"))
		},
	},
	{
		name: "every third completion fails with status 200", report: "aws/aws-sdk-js#946",
		faults: func(*testing.T, *s3test.Server) fault {
			return nth(3, func(r *http.Request) bool { return operation(r) == completeUpload },
				answers("<Error><Code>InternalError</Code><Message>failed</Message></Error>"))
		},
	},
	{
		name: "no listing of uploads", report: "lakeFS: treeverse/lakeFS#8422",
		lacks: []int{listUploads},
		faults: func(*testing.T, *s3test.Server) fault {
			return when(isListUploads, refusal(http.StatusMethodNotAllowed, "ERRLakeFSNotSupported"))
		},
	},
	{
		name: "a listing of uploads that is always empty", report: "S3Mock: adobe/S3Mock#15",
		lacks: []int{listUploads},
		faults: func(*testing.T, *s3test.Server) fault {
			return when(isListUploads, answers("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"))
		},
	},
	{
		name: "deleting a missing object is 404", report: "Google Cloud Storage: apache/opendal#2941",
		faults: deletesOnce,
	},
	{
		name: "no checksum headers", report: "Backblaze B2: iterate-ch/cyberduck#16107",
		faults: func(*testing.T, *s3test.Server) fault {
			return when(func(r *http.Request) bool {
				for name := range r.Header {
					if strings.HasPrefix(name, "X-Amz-Checksum-") || strings.HasPrefix(name, "X-Amz-Sdk-Checksum") || name == "X-Amz-Trailer" {
						return true
					}
				}
				return false
			}, refusal(http.StatusNotImplemented, "NotImplemented"))
		},
	},
	{
		name: "no bodies in chunks", report: "Alibaba OSS: stormkit-io/stormkit-io#149; Storj: storj/gateway-st#89",
		faults: func(*testing.T, *s3test.Server) fault {
			return when(func(r *http.Request) bool {
				return strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") || strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-")
			}, refusal(http.StatusBadRequest, "InvalidArgument"))
		},
	},
	{
		name: "multi-object delete wants Content-MD5", report: "Oracle's store: earth-mover/icechunk#2109; aws/aws-sdk-php#3068",
		faults: func(*testing.T, *s3test.Server) fault {
			return when(func(r *http.Request) bool {
				return operation(r) == "DeleteObjects" && r.Header.Get("Content-Md5") == ""
			}, refusal(http.StatusBadRequest, "InvalidRequest"))
		},
	},
	{
		name: "every fifth request is throttled", report: "DigitalOcean Spaces: rclone/rclone#3456, thephpleague/flysystem-aws-s3-v3#278",
		faults: func(*testing.T, *s3test.Server) fault {
			return nth(5, func(*http.Request) bool { return true }, refusal(http.StatusServiceUnavailable, "SlowDown"))
		},
	},
	{
		name: "ETags without quotes", report: "Ceph: xtream1101/s3-concat#14; MinIO, of completions: minio/minio#9517",
		large:  true,
		faults: func(*testing.T, *s3test.Server) fault { return unquoted },
	},
}

// These functions classify requests to a store.
func isCopy(r *http.Request) bool        { return operation(r) == copyObject }
func isCopyPart(r *http.Request) bool    { return isCopy(r) && r.URL.Query().Has("uploadId") }
func isCopyObject(r *http.Request) bool  { return isCopy(r) && !isCopyPart(r) }
func isListUploads(r *http.Request) bool { return operation(r) == "ListMultipartUploads" }

// copiedBytes returns the length of the range to copy.
func copiedBytes(r *http.Request) int64 {
	var from, to int64
	if n, _ := fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &from, &to); n < 2 {
		return 0
	}
	return to - from + 1
}

// when applies a fault to the requests that is selects.
func when(is func(*http.Request) bool, f fault) fault { return nth(1, is, f) }

// nth applies a fault to the first of every n requests that is selects.
func nth(n int, is func(*http.Request) bool, f fault) fault {
	var mu sync.Mutex
	met := 0
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		if !is(r) {
			return false
		}
		mu.Lock()
		hit := met%n == 0
		met++
		mu.Unlock()
		return hit && f(w, r, forward)
	}
}

func refuses400(name, code string) func(*testing.T, *s3test.Server) fault {
	return func(*testing.T, *s3test.Server) fault {
		return when(func(r *http.Request) bool { return operation(r) == name }, refusal(http.StatusBadRequest, code))
	}
}

// answers sends a body with status 200, and does nothing else.
func answers(body string) fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		_, _ = io.Copy(io.Discard, r.Body) // the client may be gone
		_, _ = io.WriteString(w, body)
		return true
	}
}

// equalParts refuses to complete an upload whose parts differ in length, as R2
// does: all parts except the last must have the same length, and the last must
// not be longer.
func equalParts() fault {
	var mu sync.Mutex
	lengths := map[string]map[string]int64{} // by upload and part number
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		query := r.URL.Query()
		upload := query.Get("uploadId")
		switch {
		case r.Method == http.MethodPut && upload != "":
			length := r.ContentLength + copiedBytes(r)
			mu.Lock()
			if lengths[upload] == nil {
				lengths[upload] = map[string]int64{}
			}
			lengths[upload][query.Get("partNumber")] = length
			mu.Unlock()
		case operation(r) == completeUpload:
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			var asked struct {
				Part []struct{ PartNumber string }
			}
			_ = xml.Unmarshal(body, &asked) // another body has no parts
			mu.Lock()
			defer mu.Unlock()
			for i, part := range asked.Part {
				first, length := lengths[upload]["1"], lengths[upload][part.PartNumber]
				if length != first && (i < len(asked.Part)-1 || length > first) {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, "<Error><Code>InvalidPart</Code><Message>All non-trailing parts must have the same length.</Message></Error>")
					return true
				}
			}
		}
		return false
	}
}

// directly returns a client of the server behind the proxy. Faults need it
// because a request cannot be changed after the client signed it.
func directly(t *testing.T, server *s3test.Server) *minio.Core {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := must.Get(minio.NewCore(strings.TrimPrefix(server.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: s3test.Region, Transport: transport,
	}))(t)
	return client
}

// objectName returns the name of the object that a request is about, or copies.
func objectName(path string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name
}

// copiesAnyVersion copies ranges of the current version and ignores the
// condition.
func copiesAnyVersion(t *testing.T, server *s3test.Server) fault {
	client := directly(t, server)
	return when(isCopyPart, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		from, err := url.PathUnescape(r.Header.Get("X-Amz-Copy-Source"))
		if err != nil {
			return refusal(http.StatusBadRequest, "InvalidArgument")(w, r, nil)
		}
		var first, last int64
		var number int
		_, _ = fmt.Sscanf(r.Header.Get("X-Amz-Copy-Source-Range"), "bytes=%d-%d", &first, &last)
		_, _ = fmt.Sscan(r.URL.Query().Get("partNumber"), &number)
		part, err := client.CopyObjectPart(r.Context(), server.Bucket, objectName(from), server.Bucket, objectName(r.URL.Path),
			r.URL.Query().Get("uploadId"), number, first, last-first+1, nil)
		if err != nil {
			return refusal(http.StatusBadRequest, minio.ToErrorResponse(err).Code)(w, r, nil)
		}
		_, _ = io.WriteString(w, "<CopyPartResult><ETag>"+part.ETag+"</ETag></CopyPartResult>")
		return true
	})
}

// deletesOnce answers 404 if there is nothing to delete.
func deletesOnce(t *testing.T, server *s3test.Server) fault {
	client := directly(t, server)
	return when(func(r *http.Request) bool { return operation(r) == "DeleteObject" }, func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		_, err := client.StatObject(r.Context(), server.Bucket, objectName(r.URL.Path), minio.StatObjectOptions{})
		return err != nil && refusal(http.StatusNotFound, codeNoSuchKey)(w, r, nil)
	})
}

var quotes = regexp.MustCompile(`(&#34;|&quot;|")`)

// unquoted removes the quotes from ETags, in headers and bodies.
func unquoted(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
	answer := httptest.NewRecorder()
	forward.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	if etag := answer.Header().Get("Etag"); etag != "" {
		w.Header()["Etag"] = []string{quotes.ReplaceAllString(etag, "")}
	}
	if r.Method != http.MethodHead && bytes.Contains(body, []byte("<ETag>")) {
		body = regexp.MustCompile(`<ETag>.*?</ETag>`).ReplaceAllFunc(body, func(tag []byte) []byte { return quotes.ReplaceAll(tag, nil) })
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(body) // the client may be gone
	return true
}

// all applies the faults one after another, until one answers.
func all(faults []fault) fault {
	return func(w http.ResponseWriter, r *http.Request, forward http.Handler) bool {
		return slices.ContainsFunc(faults, func(f fault) bool { return f(w, r, forward) })
	}
}

// TestQuirks runs the conformance suite on stores that differ from Amazon's,
// with each quirk alone and with all together, and checks the limits that the
// start finds.
func TestQuirks(t *testing.T) {
	t.Parallel()
	server := s3test.Start(t)
	together := quirk{name: "all together", large: true}
	for _, q := range quirks {
		together.lacks = append(together.lacks, q.lacks...)
	}
	together.faults = func(t *testing.T, server *s3test.Server) fault {
		var faults []fault
		for _, q := range quirks {
			faults = append(faults, q.faults(t, server))
		}
		return all(faults)
	}
	tested := append(slices.Clone(quirks), together)
	if testing.Short() { // each quirk moves hundreds of megabytes; together they use all substitutes
		tested = []quirk{together}
	}
	for _, q := range tested {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			blobtest.RunObjects(t, func(t *testing.T) blobtest.Harness {
				p := newProxy(t, server.Endpoint)
				p.inject(q.faults(t, server))
				config := configFor(server)
				direct := openBucket(t, config)
				config.Endpoint, config.PartSize = p.url, minPartSize
				config.Retry = retry.Objects
				config.Retry.First = time.Millisecond
				b := openBucket(t, config)
				lacks := slices.Clone(q.lacks)
				if slices.Contains(lacks, copyParts) {
					lacks = slices.DeleteFunc(lacks, func(call int) bool { return call == copyVersions })
				}
				for call, limit := range substitutes {
					is := slices.ContainsFunc(b.Limits(), func(l Limitation) bool { return l.Missing == limit.Missing })
					if want := slices.Contains(lacks, call); is != want {
						t.Errorf("that the server cannot %s is known: %v, want %v: %v", limit.Missing, is, want, b.Limits())
					}
				}
				return blobtest.Harness{
					Bucket:    b,
					Reopen:    func(t testing.TB) blob.Bucket { return openBucket(t, config) },
					Leftovers: func(t testing.TB) int { return uploads(t, direct) },
					Foreign:   true,
					Unpinned:  true,
					BigObject: 3*minPartSize + 1,
					Small:     !q.large,
				}
			})
		})
	}
}
