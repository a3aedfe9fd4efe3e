package actors

import (
	"context"
	"errors"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/rowmill/rowmill/cluster/peer"
)

// What a node does about inputs that it goes on downloading for jobs it has lost.

// wanted reports whether a job may still come to use the input that this node
// downloads: it is not known to be over, nor to have its input from elsewhere.
func (s *System) wanted(ctx context.Context, job string) bool {
	rec, err := s.cfg.Store.Get(ctx, job)
	if err != nil {
		return true
	}
	others := rec.Downloader != "" && rec.Downloader != s.transport.address()
	return !rec.Job.Status.Terminal() && rec.DownloadFinished == nil && !others
}

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

// onDownloadEnded looks after what has come for a job that is another's, or
// over.
func (n *node) onDownloadEnded(c actor.Context, m downloadEnded) {
	defer n.reportDrained()
	if !m.lost {
		return
	}
	how := "whole"
	if m.err != nil {
		how = "failed" // for what may hold what is the client's
	}
	n.log.Info("the download for a lost job has ended", "job", m.job, "input", how)
	n.lookAfter(c, m.job, false, func() {})
}
