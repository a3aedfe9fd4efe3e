package nodes

import (
	"context"
	"strings"
	"testing"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/client"
	apinodes "github.com/rowmill/rowmill/http/nodes"
)

func (f *fleet) ServerList(context.Context) ([]client.Server, error) {
	return []client.Server{{NodeID: "gpu1-a", Node: "gpu1", Name: "qwen"}}, nil
}

// ServerLog returns the next part of the output. At its end the server is gone.
func (f *fleet) ServerLog(_ context.Context, _, _ string, part apinodes.LogPart) (client.ServerLog, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.parts = append(f.parts, part)
	if len(f.output) == 0 {
		return client.ServerLog{}, rowmill.ErrNotFound
	}
	text := f.output[0]
	f.output = f.output[1:]
	return client.ServerLog{Text: text, End: part.After + int64(len(text))}, nil
}

func TestLogsFollowed(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.fleet.output = []string{"one\ntw", "", "o\x1b\nthree\n"}
	p.Run("servers logs qwen --follow --lines 5").WantOutput(5, "unknown_server")
	if got := p.Out.String(); got != "one\ntwo \nthree\n" {
		t.Errorf("printed %q", got)
	}
	if parts := p.fleet.parts; len(parts) != 4 || parts[0] != (apinodes.LogPart{Lines: 5}) || parts[3] != (apinodes.LogPart{Lines: maxFollowedLines, After: 15}) {
		t.Errorf("requested %v", parts)
	}
	p.fleet.output = []string{"no line end"}
	if p.Run("servers logs gpu1-a/qwen").WantOutput(0); !strings.HasPrefix(p.Out.String(), "no line end\n") {
		t.Errorf("printed %q", p.Out.String())
	}
}
