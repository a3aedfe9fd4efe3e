package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/wait"
)

// maxAnonymous limits a node's memory for any input.
const maxAnonymous = 256 << 20

// TestBadInputs sends one node inputs that are broken in many ways. Each job fails with
// a reason and leaves no file, and the node continues.
func TestBadInputs(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 1000, 0)
	n := newNode(t, w.url, "inputs: {stall_timeout: 1s}")
	n.environ = []string{"GOMEMLIMIT=200MiB"} // otherwise memory depends on the time of garbage collection
	n.start(t)
	csv, parquet := csvOf(t, 1000), parquetOf(t, 1000)
	zipped := gzipped(t, csv)
	corrupt, checksum := bytes.Clone(zipped), bytes.Clone(zipped)
	corrupt[len(corrupt)/2] ^= 0xff
	checksum[len(checksum)-8] ^= 0xff // of the CRC before the size
	flipped := bytes.Clone(parquet)
	for i := 100; i < len(flipped)-1000; i += 97 {
		flipped[i] ^= 0xff
	}
	quote := size(64, 300, 300) // MB
	stalled, _ := serveSlowly(t, csv)

	tests := []struct {
		name, url string
		code      string
		says      []string // the message must contain one
	}{
		{"truncated Parquet", serveBytes(t, parquet[:len(parquet)/2]), "invalid_input_file", []string{"arquet"}},
		{"Parquet with flipped bytes", serveBytes(t, flipped), "invalid_input_file", []string{"arquet", "column", "page"}},
		{"corrupt gzip", serveBytes(t, corrupt), "invalid_input_file", []string{"gzip", "CSV"}}, // the unpacked part may look like a bad CSV first
		{"gzip with a wrong checksum", serveBytes(t, checksum), "invalid_input_file", []string{"gzip"}},
		{"truncated gzip", serveBytes(t, zipped[:len(zipped)/2]), "invalid_input_file", []string{"gzip"}},
		{fmt.Sprintf("unclosed quote in %d MB", quote), serve(t, unclosedQuote(quote<<20)), "invalid_input_file", []string{"quote", "line 3", "bytes"}},
		{"ragged CSV", serveBytes(t, []byte("id,text\n1,row-1-\n2\n")), "invalid_input_file", []string{"line 3"}},
		{"not UTF-8", serveBytes(t, []byte("id,text\n1,row-\xff\n")), "invalid_input_file", []string{"UTF-8"}},
		{"no such column", serveBytes(t, []byte("id,txt\n1,row-1-\n")), "invalid_input_file", []string{"text"}},
		{"no rows", serveBytes(t, []byte("id,text\n")), "invalid_input_file", []string{"row"}},
		{"an empty file", serveBytes(t, nil), "invalid_input_file", []string{"empty", "header"}},
		{"a URL that stalls", stalled, "download_failed", []string{"stall", "1s", "byte"}},
		{"404", serve(t, http.NotFound), "download_failed", []string{"404"}},
		{"no server", "http://127.0.0.1:9/input", "download_failed", []string{"127.0.0.1", "refused", "connect"}},
		{"a body that ends early", serve(t, endsEarly), "download_failed", []string{"ended", "EOF", "bytes", "length"}},
	}
	peak := int64(0)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			id := n.submit(t, submission{Inputs: test.url + "?secret=swordfish", Model: model, Column: "text", Priority: 1})
			job := n.until(t, id, "over", func(r record) bool {
				peak = max(peak, n.anonymous(t))
				return r.over()
			})
			if job.Status != "failed" || job.FailureReason == nil {
				t.Fatalf("%+v (%+v), want a failed job", job, job.FailureReason)
			}
			t.Logf("%s: %s", job.FailureReason.Code, job.FailureReason.Message)
			if job.FailureReason.Code != test.code {
				t.Errorf("code %s, want %s", job.FailureReason.Code, test.code)
			}
			if !holdsOne(job.FailureReason.Message, test.says) {
				t.Errorf("message %q mentions none of %q", job.FailureReason.Message, test.says)
			}
			if strings.Contains(job.FailureReason.Message, "swordfish") {
				t.Errorf("message %q shows the query", job.FailureReason.Message)
			}
			n.wantNoFiles(t, id)
		})
	}
	t.Logf("peak anonymous memory: %d MiB", peak>>20)
	if peak > maxAnonymous {
		t.Errorf("the node used %d MiB, more than %d", peak>>20, maxAnonymous>>20)
	}

	id := n.submit(t, submission{Inputs: serveBytes(t, zipped), Model: model, Column: "text", IDColumn: "id", Priority: 1})
	n.succeeds(t, id)
	n.checkRows(t, id, 1000)
	if log := n.log(t); strings.Contains(log, "swordfish") {
		t.Error("the log shows the query of a signed URL")
	}
}

// unclosedQuote serves size bytes of CSV. Its third line opens a quote that does not
// close.
func unclosedQuote(size int) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		if _, err := out.Write([]byte("id,text\n1,row-1-\n2,\"row-2-")); err != nil {
			return
		}
		block := []byte(strings.Repeat("and on it goes, line after line\n", 2048))
		for sent := 0; sent < size; sent += len(block) {
			if _, err := out.Write(block); err != nil {
				return // the node has stopped reading
			}
		}
	}
}

// endsEarly announces more bytes than it sends.
func endsEarly(out http.ResponseWriter, _ *http.Request) {
	out.Header().Set("Content-Length", "1000")
	_, _ = out.Write([]byte("id,text\n1,row-1-\n")) // returning closes the connection
}

// holdsOne reports whether the text contains one of the parts, in any case.
func holdsOne(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(strings.ToLower(text), strings.ToLower(part)) {
			return true
		}
	}
	return false
}

// wantNoFiles waits until a failed job has no files.
func (n *node) wantNoFiles(t *testing.T, id string) {
	t.Helper()
	wait.Until(t, func() error {
		if left := n.files(t, id); len(left) > 0 {
			return fmt.Errorf("files left behind: %q", left)
		}
		return nil
	})
}

// TestFullDisk gives a node a file system of 48 MiB and a job that needs more.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := newWitness(t, 400_000, 0)
	n := newNode(t, w.url, killSettings)
	must.Succeed(t, os.MkdirAll(n.data, 0o755))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", n.data).CombinedOutput(); err != nil {
		unable(t, "a full disk needs the right to mount a tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() {
		n.kill()
		if out, err := exec.Command("umount", n.data).CombinedOutput(); err != nil {
			t.Errorf("unmount %s: %v: %s", n.data, err, out)
		}
	})
	n.start(t)
	// 46 MB that do not compress below three quarters: there is no room for the file
	// and its shards.
	noise, big := rand.NewChaCha8([32]byte{}), bytes.NewBufferString("id,text\n")
	for i, some := 0, [72]byte{}; i < 400_000; i++ {
		noise.Read(some[:])
		fmt.Fprintf(big, "%d,row-%d-: %s\n", i, i, base64.StdEncoding.EncodeToString(some[:]))
	}
	id := n.submit(t, submission{Inputs: serveBytes(t, big.Bytes()), Model: model, Column: "text", Priority: 1})
	n.until(t, id, "waiting for room", func(r record) bool {
		return strings.HasPrefix(r.Message, "Waiting for object storage, which has no room since")
	})
	n.call(t, http.MethodGet, "/v1/job-cancel/"+id, nil, nil)
	wait.Until(t, func() error { // otherwise the rows stay for a job that resumes this one
		status, text, err := n.send(http.MethodDelete, "/v1/jobs/"+id+"/data", nil)
		if err != nil || status != http.StatusOK && status != http.StatusInsufficientStorage { // 507 until the unfinished file is gone
			t.Fatalf("DELETE answers %d: %.300s: %v", status, text, err)
		}
		if status != http.StatusOK {
			return errors.New(string(text))
		}
		return nil
	})
	n.wantNoFiles(t, id)

	id = n.submit(t, submission{Inputs: []string{rowText(0)}, Model: model})
	n.succeeds(t, id)
	n.checkRows(t, id, 1)
}
