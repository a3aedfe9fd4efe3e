// Package s3test runs a real S3 server, versitygw, for tests and for clusters
// on one machine. It knows where `.ci/tools s3` puts the server, keeps its port
// reserved while the server is down, and makes one bucket. Tests that need the
// server skip, loudly, where it is missing, and fail instead when ROWMILL_CI is
// set.
package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/repo"
)

// What every server has. The keys guard nothing: the server is on loopback.
const (
	Bucket    = "rowmill"
	Region    = "us-east-1"
	AccessKey = "rowmill-test-key"
	SecretKey = "rowmill-test-secret"
)

// upWithin bounds a start: a fifth of a second is usual, a busy machine needs
// more.
const upWithin = 60 * time.Second

// module is what internal/s3server pins.
const module = "github.com/versity/versitygw"

// ErrNotInstalled says that the server is not on this machine.
var ErrNotInstalled = errors.New("no versitygw on this machine: run `.ci/tools s3`")

// Options of a server.
type Options struct {
	// Dir is where the server keeps its objects, over restarts too. It is made
	// when missing.
	Dir string
	// IP is what the server listens on. Default 127.0.0.1.
	IP string
	// Port is what the server listens on. 0 is a free one, reserved on this
	// machine until Stop, which is no help inside another network namespace.
	Port int
	// Versions has the bucket keep versions of its objects.
	Versions bool
	// Prefix is put before the command line, such as {"ip", "netns", "exec",
	// "s3"}; it must become the server (exec), and IP must be one that this
	// process can reach.
	Prefix []string
}

// A Server is a running versitygw.
type Server struct {
	Endpoint  string // such as http://127.0.0.1:4711
	Port      int
	Dir       string
	AccessKey string
	SecretKey string
	Bucket    string

	binary   string
	options  Options
	reserved *port.Reservation // nil for a port that was given

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	output *tail
}

// Binary is the server's program, or ErrNotInstalled.
func Binary() (string, error) {
	pins, err := os.ReadFile(repo.Path("internal", "s3server", "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(pins)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == module {
			path := repo.Path("bin", "tools", "versitygw-"+fields[1])
			if _, err := os.Stat(path); err != nil {
				return "", ErrNotInstalled
			}
			return path, nil
		}
	}
	return "", fmt.Errorf("internal/s3server/go.mod does not name %s", module)
}

// Start starts a server on an empty directory that ends with the test. It
// skips the test where no server is installed.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := Run(t.Context(), t.TempDir(), 0)
	if errors.Is(err, ErrNotInstalled) {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED, NOT TESTED against a real S3 server: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Run starts a server on 127.0.0.1 that keeps its objects in dir. ctx bounds
// the start, not the server's life.
func Run(ctx context.Context, dir string, port int) (*Server, error) {
	return RunWith(ctx, Options{Dir: dir, Port: port})
}

// RunWith starts a server and makes its bucket.
func RunWith(ctx context.Context, o Options) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	if o.IP == "" {
		o.IP = "127.0.0.1"
	}
	s := &Server{
		Dir: o.Dir, AccessKey: AccessKey, SecretKey: SecretKey, Bucket: Bucket,
		binary: binary, options: o, Port: o.Port,
	}
	if s.Port == 0 {
		if s.reserved, err = port.Reserve(ctx, o.IP); err != nil {
			return nil, fmt.Errorf("reserve a port: %w", err)
		}
		s.Port = s.reserved.Port
	}
	s.Endpoint = "http://" + s.address()
	if err := s.Restart(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	if err := s.makeBucket(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("make bucket %s: %w", s.Bucket, err)
	}
	return s, nil
}

func (s *Server) address() string { return net.JoinHostPort(s.options.IP, strconv.Itoa(s.Port)) }

// Restart starts the server again, on the same address and directory, and
// returns once it answers. A running one is killed first.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	objects := filepath.Join(s.Dir, "objects")
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	args := []string{"--port", s.address(), "--region", Region, "--quiet", "--keep-alive", "posix"}
	if !keepsAttributes(objects) {
		side := filepath.Join(s.Dir, "attributes")
		if err := os.MkdirAll(side, 0o700); err != nil {
			return err
		}
		args = append(args, "--sidecar", side)
	}
	if s.options.Versions {
		versions := filepath.Join(s.Dir, "versions")
		if err := os.MkdirAll(versions, 0o700); err != nil {
			return err
		}
		args = append(args, "--versioning-dir", versions)
	}
	line := append(append([]string{}, s.options.Prefix...), s.binary)
	line = append(line, append(args, objects)...)

	s.mu.Lock()
	s.output = &tail{}
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), line[0], line[1:]...) // outlives the start
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+AccessKey, "ROOT_SECRET_ACCESS_KEY="+SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.exited = make(chan struct{})
	cmd, exited := s.cmd, s.exited
	err := cmd.Start()
	if err != nil {
		close(exited)
	}
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("start %s: %w", s.binary, err)
	}
	go func() {
		_ = cmd.Wait() // Stop and Kill end it, and its output says the rest
		close(exited)
	}()
	return s.waitUp(ctx, exited)
}

// waitUp waits until the server answers anything.
func (s *Server) waitUp(ctx context.Context, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, upWithin)
	defer cancel()
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, http.NoBody)
		if err != nil {
			return err
		}
		if res, err := client.Do(req); err == nil {
			_ = res.Body.Close()
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("versitygw ended at once: %s", s.output)
		case <-ctx.Done():
			return fmt.Errorf("versitygw does not answer on %s: %w: %s", s.Endpoint, ctx.Err(), s.output)
		case <-poll.C:
		}
	}
}

func (s *Server) makeBucket(ctx context.Context) error {
	client, done, err := s.client()
	if err != nil {
		return err
	}
	defer done()
	if there, err := client.BucketExists(ctx, Bucket); err != nil || there {
		return err
	}
	if err := client.MakeBucket(ctx, Bucket, minio.MakeBucketOptions{Region: Region}); err != nil || !s.options.Versions {
		return err
	}
	return client.EnableVersioning(ctx, Bucket)
}

func (s *Server) client() (client *minio.Client, done func(), err error) {
	transport := &http.Transport{}
	client, err = minio.New(s.address(), &minio.Options{
		Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Region: Region, Transport: transport,
	})
	return client, transport.CloseIdleConnections, err
}

// Undelete brings back what was deleted since a time, in a bucket with versions: it
// removes the markers that hide the objects, of which an object that was deleted twice has
// two. It returns how many there were.
func (s *Server) Undelete(ctx context.Context, since time.Time) (n int, err error) {
	client, done, err := s.client()
	if err != nil {
		return 0, err
	}
	defer done()
	for o := range client.ListObjects(ctx, Bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if o.Err != nil {
			return n, o.Err
		}
		if !o.IsDeleteMarker {
			continue
		}
		made, err := madeAt(o.VersionID)
		if err != nil {
			return n, fmt.Errorf("look when %s was deleted: %w", o.Key, err)
		}
		if made.Before(since.Truncate(time.Millisecond)) {
			continue
		}
		if err := client.RemoveObject(ctx, Bucket, o.Key, minio.RemoveObjectOptions{VersionID: o.VersionID}); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// madeAt is when a version was made: versions of versitygw are ULIDs, whose first ten
// characters are that in milliseconds, in Crockford's base 32. What it tells as the last
// modification of a delete marker is that of the object.
// https://github.com/ulid/spec
func madeAt(version string) (time.Time, error) {
	if len(version) != 26 {
		return time.Time{}, fmt.Errorf("version %q is no ULID", version)
	}
	var ms int64
	for _, c := range version[:10] {
		digit := strings.IndexRune("0123456789ABCDEFGHJKMNPQRSTVWXYZ", c)
		if digit < 0 {
			return time.Time{}, fmt.Errorf("version %q is no ULID", version)
		}
		ms = ms<<5 | int64(digit)
	}
	return time.UnixMilli(ms), nil
}

// Kill ends the server as a crash would (SIGKILL) and returns once it is gone.
// Its port stays reserved.
func (s *Server) Kill() { s.Signal(syscall.SIGKILL); s.wait() }

// Signal sends a signal, such as SIGSTOP, to a running server.
func (s *Server) Signal(signal os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(signal) // it may have ended
	}
}

func (s *Server) wait() {
	s.mu.Lock()
	exited := s.exited
	s.mu.Unlock()
	if exited != nil {
		<-exited
	}
}

// Stop ends the server and gives its port back. Twice is harmless.
func (s *Server) Stop() {
	s.Kill()
	if s.reserved != nil {
		s.reserved.Release()
	}
}

// keepsAttributes reports whether files in dir can have extended attributes,
// where the server keeps ETags and content types.
func keepsAttributes(dir string) bool {
	return unix.Setxattr(dir, "user.rowmill", []byte("1"), 0) == nil
}

// tail keeps the last output of the server.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *tail) Write(p []byte) (int, error) {
	const keep = 8 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if over := w.buf.Len() - keep; over > 0 {
		w.buf.Next(over)
	}
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
