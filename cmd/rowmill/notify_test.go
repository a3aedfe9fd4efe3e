package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

func TestNotify(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "notify")
	heard := must.Get(net.ListenPacket("unixgram", socket))(t)
	defer func() { _ = heard.Close() }()
	for _, state := range []string{notifyReady, notifyStopping} {
		must.Succeed(t, notifySystemd(t.Context(), socket, state))
		b := make([]byte, 100)
		n, _, err := heard.ReadFrom(b)
		if err != nil || string(b[:n]) != state {
			t.Errorf("heard %q, error %v", b[:n], err)
		}
	}
	if err := notifySystemd(t.Context(), "", notifyReady); err != nil {
		t.Error(err)
	}
	if err := notifySystemd(t.Context(), socket+"-gone", notifyReady); err == nil || !strings.Contains(err.Error(), "tell systemd READY=1") {
		t.Errorf("error %v", err)
	}
}
