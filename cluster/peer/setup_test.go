package peer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A handler answers a text with a text.
type handler func(ctx context.Context, said string) (string, error)

// service lets a handler answer GetFigures, which takes a text and returns bytes.
type service struct {
	peerv1connect.UnimplementedNodeServiceHandler
	handler handler
}

func (s service) GetFigures(ctx context.Context, r *peerv1.GetFiguresRequest) (*peerv1.GetFiguresResponse, error) {
	answer, err := s.handler(ctx, r.GetWhat())
	return &peerv1.GetFiguresResponse{Document: []byte(answer)}, err
}

// kind is the name of the request in metrics.
const kind = "get_figures"

// echo returns its text.
func echo(_ context.Context, said string) (string, error) { return said, nil }

// listen starts a server that stops after the test. With a nil handler the node stays
// in state starting.
func listen(t *testing.T, cfg peer.Config, h handler) (server *peer.Server, addr string) {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	server = must.Get(peer.Listen(cfg))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if h != nil {
		server.SetHandler(service{handler: h})
	}
	return server, server.Addr().String()
}

func newClient(t *testing.T, cfg peer.Config) *peer.Client {
	t.Helper()
	c := must.Get(peer.NewClient(cfg))(t)
	t.Cleanup(c.Close)
	return c
}

// say sends a text to the node at an address.
func say(ctx context.Context, c *peer.Client, addr, text string) (string, error) {
	res, err := c.Node(addr).GetFigures(ctx, &peerv1.GetFiguresRequest{What: text})
	return string(res.GetDocument()), err
}

// ask is say with a timeout that no working test reaches.
func ask(t *testing.T, c *peer.Client, addr, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return say(ctx, c, addr, text)
}

// hello is ask without the answer.
func hello(t *testing.T, c *peer.Client, addr string) error {
	t.Helper()
	_, err := ask(t, c, addr, "hello")
	return err
}

// wantCode fails unless err is a refusal with this code.
func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var refusal *peer.Refusal
	if !errors.As(err, &refusal) || refusal.Code != code {
		t.Fatalf("error %v, want a refusal with code %s", err, code)
	}
}

// authority issues the certificates of a cluster.
type authority struct {
	*certtest.Authority
	t *testing.T
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := must.Get(certtest.NewAuthority())(t)
	return authority{a, t}
}

// issue writes the files of a node with this name into a folder.
func (a authority) issue(dir, name string) peer.TLS {
	a.t.Helper()
	files := must.Get(a.Issue(dir, name))(a.t)
	return peer.TLS{CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA}
}
