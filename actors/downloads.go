package actors

import (
	"context"
	"errors"

	"github.com/rowmill/rowmill/cluster/peer"
)

// What a node does about inputs that it goes on downloading for jobs it has lost.

// downloadsAt reports whether the node at an address is downloading the input of
// a job. Nobody who can answer is not; an error says that it is not known.
func (p *process) downloadsAt(ctx context.Context, address, job string) (bool, error) {
	if p.transport.peers == nil || address == "" || address == p.address {
		return p.downloads.Running(job), nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	running, err := p.transport.isDownloading(ctx, address, job)
	if errors.Is(err, peer.ErrRefused) {
		return false, nil
	}
	return running, err
}
