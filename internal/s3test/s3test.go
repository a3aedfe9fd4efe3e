// Package s3test runs a real S3 server, versitygw, for tests and for clusters on one
// machine. It finds the server that `.ci/tools s3` installs, reserves its port even
// while the server is down, and makes one bucket. If the server is missing, tests that
// need it are skipped with a message, or fail if ROWMILL_CI is set.
package s3test

import (
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
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"github.com/rowmill/rowmill/internal/must"
	"github.com/rowmill/rowmill/internal/port"
	"github.com/rowmill/rowmill/internal/proctest"
	"github.com/rowmill/rowmill/internal/repo"
)

// These values are the same for every server. The keys protect nothing: the server is on
// loopback.
const (
	Bucket    = "rowmill"
	Region    = "us-east-1"
	AccessKey = "rowmill-test-key"
	SecretKey = "rowmill-test-secret"
)

// startTimeout limits the start of the server. It usually takes a fifth of a second; a
// busy machine needs more.
const startTimeout = 60 * time.Second

// module is the import path of the server's Go module; internal/s3server/go.mod has its
// version.
const module = "github.com/versity/versitygw"

// ErrNotInstalled means that the server is not on this machine.
var ErrNotInstalled = errors.New("no versitygw on this machine: run `.ci/tools s3`")

// Options of a server.
type Options struct {
	// Dir is the folder of the server's objects. A restart uses the same folder. It is
	// created if missing.
	Dir string
	// IP is the address to listen on. Default 127.0.0.1.
	IP string
	// Port is the port to listen on. 0 means a free port, reserved on this machine
	// until Stop. The reservation has no effect in another network namespace.
	Port int
	// Versions makes the bucket keep versions of its objects.
	Versions bool
	// Prefix is put before the server's command line, such as {"ip", "netns", "exec",
	// "s3"}. The process of the prefix must become the server (exec), and this process
	// must be able to reach IP.
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
	reserved *port.Reservation // nil for a port that the caller gave

	mu      sync.Mutex
	process *proctest.Process // the last started process; nil before the first start
}

// Binary returns the path of the server's program, or ErrNotInstalled.
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

// Start starts a server with an empty directory that runs until the end of the test. It
// skips the test if no server is installed.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := Run(t.Context(), t.TempDir(), 0)
	if errors.Is(err, ErrNotInstalled) {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED, NOT TESTED against a real S3 server: %v", err)
	}
	must.Succeed(t, err)
	t.Cleanup(s.Stop)
	return s
}

// Run starts a server on 127.0.0.1 with its objects in dir. ctx limits the start, not
// the life of the server.
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

// Restart starts the server again, on the same address and directory, and returns after
// it answers. It kills a running server first.
func (s *Server) Restart(ctx context.Context) error {
	s.Kill()
	objects := filepath.Join(s.Dir, "objects")
	if err := os.MkdirAll(objects, 0o700); err != nil {
		return err
	}
	args := []string{"--port", s.address(), "--region", Region, "--quiet", "--keep-alive", "posix"}
	if !supportsXattr(objects) {
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

	command := exec.CommandContext(context.WithoutCancel(ctx), line[0], line[1:]...) // the server keeps running when ctx ends
	command.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+AccessKey, "ROOT_SECRET_ACCESS_KEY="+SecretKey)
	process, err := proctest.Start(command)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	return process.WaitUntilReady(ctx, startTimeout, func() bool { return proctest.GetStatus(ctx, s.Endpoint) != 0 })
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

// Undelete restores the objects that were deleted since a time, in a bucket with
// versions. It removes their delete markers and returns the number of removed markers.
// An object that was deleted twice has two markers.
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
			return n, fmt.Errorf("find out when %s was deleted: %w", o.Key, err)
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

// madeAt returns the time at which a version was made. Versions of versitygw are ULIDs:
// the first ten characters are milliseconds, in Crockford's base 32. The last
// modification of a delete marker is not usable, because versitygw reports the time of
// the object there. https://github.com/ulid/spec
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

// Kill kills the server (SIGKILL), like a crash, and returns after it has ended. Its
// port stays reserved.
func (s *Server) Kill() {
	if process := s.currentProcess(); process != nil {
		process.KillAndWait()
	}
}

// Signal sends a signal, such as SIGSTOP, to a running server.
func (s *Server) Signal(signal os.Signal) {
	if process := s.currentProcess(); process != nil {
		_ = process.Signal(signal) // an error does not matter: the process may have ended
	}
}

func (s *Server) currentProcess() *proctest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Stop ends the server and releases its port. Calling it twice is harmless.
func (s *Server) Stop() {
	s.Kill()
	if s.reserved != nil {
		s.reserved.Release()
	}
}

// supportsXattr reports whether files in dir can have extended attributes, which the
// server needs for ETags and content types.
func supportsXattr(dir string) bool {
	return unix.Setxattr(dir, "user.rowmill", []byte("1"), 0) == nil
}
