package peer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// The encoded responses of a health check.
const (
	serving    = "\x08\x01"
	notServing = "\x08\x02"
)

// streams checks that answers come over HTTP/2, which most gRPC clients need.
type streams struct {
	t *testing.T
	http.RoundTripper
}

func (s streams) Do(r *http.Request) (*http.Response, error) {
	res, err := s.RoundTrip(r)
	if err == nil && res.ProtoMajor != 2 {
		s.t.Errorf("answered over %s", res.Proto)
	}
	return res, err
}

// check requests the health of a node with gRPC over HTTP/2, like any client of
// grpc.health.v1.
func check(t *testing.T, addr string, files peer.TLS, service string) (string, error) {
	t.Helper()
	scheme, protocols := "http", new(http.Protocols)
	transport := &http.Transport{Protocols: protocols}
	protocols.SetUnencryptedHTTP2(true)
	if files.CertFile != "" {
		scheme = "https"
		protocols.SetHTTP2(true)
		roots := x509.NewCertPool()
		text, err := os.ReadFile(files.CAFile)
		if err != nil || !roots.AppendCertsFromPEM(text) {
			t.Fatal(err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "rowmill", Certificates: []tls.Certificate{pair(t, files)}}
	}
	defer transport.CloseIdleConnections()
	client := connect.NewClient[emptypb.Empty, emptypb.Empty](streams{t, transport}, scheme+"://"+addr+"/grpc.health.v1.Health/Check", connect.WithGRPC())
	request := &emptypb.Empty{}
	if service != "" {
		request.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), service))
	}
	res, err := client.CallUnary(t.Context(), connect.NewRequest(request))
	if err != nil {
		return "", err
	}
	return string(res.Msg.ProtoReflect().GetUnknown()), nil
}

// TestHealth checks the health of a node that starts, works, is busy and drains.
func TestHealth(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]peer.TLS{"plain": {}, "TLS": newAuthority(t).issue(t.TempDir(), "rowmill")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var draining atomic.Bool
			cfg := peer.Config{TLS: files, MaxInFlight: 1, Ready: func() bool { return !draining.Load() }}
			server, addr := listen(t, cfg, nil)
			is := func(want string) {
				t.Helper()
				for _, service := range []string{"", peerv1connect.NodeServiceName} {
					if got, err := check(t, addr, files, service); err != nil || got != want {
						t.Errorf("service %q: %x, %v, want %x", service, got, err, want)
					}
				}
			}
			is(notServing)
			inside, release := make(chan struct{}), make(chan struct{})
			server.SetHandler(service{handler: func(context.Context, string) (string, error) {
				inside <- struct{}{}
				<-release
				return "", nil
			}})
			is(serving)
			answered := make(chan error)
			client := newClient(t, peer.Config{TLS: files})
			go func() { answered <- hello(t, client, addr) }()
			<-inside
			is(serving) // MaxInFlight requests are in progress
			close(release)
			if err := <-answered; err != nil {
				t.Error(err)
			}
			if _, err := check(t, addr, files, "billing"); connect.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("a service that is not there: %v", err)
			}
			draining.Store(true)
			is(notServing)
		})
	}
}

// TestHealthProbe runs grpc_health_probe, like an operator.
func TestHealthProbe(t *testing.T) {
	t.Parallel()
	tool := os.Getenv("ROWMILL_PROBE")
	if tool == "" {
		t.Skip("SKIPPED, NOT TESTED: grpc_health_probe is not here; make contract builds it and asks")
	}
	files := newAuthority(t).issue(t.TempDir(), "rowmill")
	server, addr := listen(t, peer.Config{TLS: files}, nil)
	probe := func(args ...string) (string, int) {
		t.Helper()
		command := exec.CommandContext(t.Context(), tool, append([]string{"-addr", addr, "-tls", "-tls-ca-cert", files.CAFile, "-tls-server-name", "rowmill", "-connect-timeout", "10s", "-rpc-timeout", "10s"}, args...)...)
		out, err := command.CombinedOutput()
		if command.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), command.ProcessState.ExitCode()
	}
	own := []string{"-tls-client-cert", files.CertFile, "-tls-client-key", files.KeyFile}
	if out, code := probe(own...); code == 0 || !strings.Contains(out, "NOT_SERVING") {
		t.Errorf("a node that starts: %d, %s", code, out)
	}
	server.SetHandler(service{handler: echo})
	if out, code := probe(own...); code != 0 || !strings.Contains(out, "SERVING") {
		t.Errorf("a node at work: %d, %s", code, out)
	}
	if out, code := probe(append(own, "-service", peerv1connect.NodeServiceName)...); code != 0 {
		t.Errorf("its service: %d, %s", code, out)
	}
	if out, code := probe("-connect-timeout", "1s"); code == 0 {
		t.Errorf("without a certificate: %s", out)
	}
}
