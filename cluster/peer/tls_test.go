package peer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMutualTLS(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	server := ours.issue(t.TempDir(), "rowmill")
	_, addr := listen(t, peer.Config{TLS: server}, echo)

	wrongName := ours.issue(t.TempDir(), "billing")
	wrongName.Name = "billing"
	stranger := others.issue(t.TempDir(), "rowmill")
	trusting := stranger // signed by another CA, but accepts ours
	trusting.CAFile = server.CAFile
	for _, test := range []struct {
		name  string
		files peer.TLS
		ok    bool
	}{
		{"same CA", ours.issue(t.TempDir(), "rowmill"), true},
		{"other CA", stranger, false},
		{"other CA that trusts ours", trusting, false},
		{"plain", peer.TLS{}, false},
		{"same CA, issued for something else", wrongName, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := hello(t, newClient(t, peer.Config{TLS: test.files}), addr)
			if test.ok && err != nil {
				t.Error(err)
			}
			if !test.ok && !errors.Is(err, peer.ErrUnreachable) {
				t.Errorf("error %v, want ErrUnreachable", err)
			}
		})
	}

	t.Run("name checked by the server", func(t *testing.T) {
		wrongName.Name = "rowmill"
		if _, err := peer.NewClient(peer.Config{TLS: wrongName}); err == nil || !strings.Contains(err.Error(), "DNS:rowmill") {
			t.Errorf("error %v, want the name that is missing", err)
		}
	})
	for _, test := range []struct {
		name  string
		certs []tls.Certificate
		top   uint16
	}{
		{"no certificate", nil, tls.VersionTLS13},
		{"TLS 1.2", []tls.Certificate{pair(t, server)}, tls.VersionTLS12},
		{"certificate of another CA", []tls.Certificate{pair(t, stranger)}, tls.VersionTLS13},
		{"certificate for something else", []tls.Certificate{pair(t, wrongName)}, tls.VersionTLS13},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", addr, &tls.Config{
				InsecureSkipVerify: true, MaxVersion: test.top,
				// The client sends its certificate even if the server would not accept
				// it.
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
					return &append(test.certs, tls.Certificate{})[0], nil
				},
			})
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			// With TLS 1.3 the client sees the refusal only when it reads.
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = conn.Write([]byte("POST /peer HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"))
			if n, err := conn.Read(make([]byte, 100)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d bytes, %v, want that the server hangs up", n, err)
			}
		})
	}
}

func TestTLSAgainstPlainServer(t *testing.T) {
	t.Parallel()
	_, addr := listen(t, peer.Config{}, echo)
	err := hello(t, newClient(t, peer.Config{TLS: newAuthority(t).issue(t.TempDir(), "rowmill")}), addr)
	if !errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("error %v, want ErrUnreachable", err)
	}
}

// TestStuckHandshake gives up on a server that accepts a connection and sends nothing.
func TestStuckHandshake(t *testing.T) {
	t.Parallel()
	silent := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = silent.Close() }()
	hungUp := make(chan error, 1)
	go func() {
		conn, err := silent.Accept()
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, err = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
		hungUp <- err
	}()
	client := newClient(t, peer.Config{TLS: newAuthority(t).issue(t.TempDir(), "rowmill"), DialTimeout: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := say(ctx, client, silent.Addr().String(), "hello"); !errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("error %v, want ErrUnreachable", err)
	}
	if err := <-hungUp; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection outlives the one who asked for it")
	}
}

// TestRotation replaces all certificates while the server runs: first by files that do
// not match, then by files of a new CA.
func TestRotation(t *testing.T) {
	t.Parallel()
	before, after := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	files := before.issue(dir, "rowmill")
	log := &journal{}
	_, addr := listen(t, peer.Config{TLS: files, Logger: slog.New(slog.NewTextHandler(log, nil))}, echo)
	old := before.issue(t.TempDir(), "rowmill")
	greet := func(files peer.TLS) error { return hello(t, newClient(t, peer.Config{TLS: files}), addr) }
	must.Succeed(t, greet(old))

	must.Succeed(t, os.WriteFile(files.KeyFile, []byte("half a file"), 0o600))
	if err := greet(old); err != nil {
		t.Errorf("with a key that cannot be read: %v, want that the former one stays", err)
	}
	if !log.contains("changed certificate files are invalid") {
		t.Error("nothing is logged about a key that cannot be read")
	}

	after.issue(dir, "rowmill")
	if err := greet(after.issue(t.TempDir(), "rowmill")); err != nil {
		t.Errorf("after the change, with the new CA: %v", err)
	}
	if err := greet(old); !errors.Is(err, peer.ErrUnreachable) {
		t.Errorf("after the change, with the old CA: %v, want ErrUnreachable", err)
	}
}

func TestBadTLSFiles(t *testing.T) {
	t.Parallel()
	good := newAuthority(t).issue(t.TempDir(), "rowmill")
	noCA := good
	noCA.CAFile = good.KeyFile
	for name, files := range map[string]peer.TLS{
		"set all of CertFile, KeyFile and CAFile": {CertFile: good.CertFile, KeyFile: good.KeyFile},
		"no such file":          {CertFile: good.CertFile + "x", KeyFile: good.KeyFile, CAFile: good.CAFile},
		"no certificate in PEM": noCA,
	} {
		if _, err := peer.NewClient(peer.Config{TLS: files}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("client: error %v, want %q", err, name)
		}
		if _, err := peer.Listen(peer.Config{TLS: files, Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("server: error %v, want %q", err, name)
		}
	}
}

func pair(t *testing.T, files peer.TLS) tls.Certificate {
	t.Helper()
	cert := must.Get(tls.LoadX509KeyPair(files.CertFile, files.KeyFile))(t)
	return cert
}

// journal is a log buffer for several goroutines.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) contains(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), text)
}
