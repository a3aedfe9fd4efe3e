package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/store"
)

// A Downloader writes the content of a URL to w, as *input.Downloader does.
type Downloader interface {
	Fetch(ctx context.Context, url string, w io.Writer) (int64, error)
}

// download stores an input from a URL. An input is requested only once: the record says
// that the download has started before the request is sent. If the object of the input
// exists, it is complete, even if the record does not say so: the node that stored it
// may have crashed or lost the job before it updated the record.
func (g *ingester) download(ctx context.Context) error {
	if g.rec.DownloadFinished != nil {
		return nil
	}
	if err := g.ensureInputStored(ctx); err != nil || g.rec.DownloadFinished != nil {
		return err
	}
	return g.markDownloaded(ctx)
}

// markDownloaded records that the download has finished.
func (g *ingester) markDownloaded(ctx context.Context) error {
	return g.updateRecord(ctx, func(r *store.Record, now time.Time) {
		if r.DownloadStarted == nil {
			r.DownloadStarted = &now
		}
		r.DownloadFinished = &now
		if r.Job.Message == "" || isDownloading(r.Job.Message) { // else the job already runs or waits
			r.SetMessage(Reading, false, now)
		}
	})
}

// ensureInputStored downloads the input, or waits for a download that has already started. It
// returns when the complete input is stored.
func (g *ingester) ensureInputStored(ctx context.Context) error {
	if d := g.Downloads.findRunning(g.rec.Job.ID); d != nil { // this node started the download under an earlier lease
		return d.wait(ctx)
	}
	there, err := g.isInputStored(ctx)
	switch {
	case there || err != nil:
		return err
	case g.rec.DownloadStarted != nil:
		return g.waitForOtherDownload(ctx)
	}
	return g.fetch(ctx)
}

// isInputStored reports whether the complete input is in the bucket.
func (g *ingester) isInputStored(ctx context.Context) (bool, error) {
	err := g.Wait(ctx, func() error {
		_, err := g.Bucket.Stat(ctx, layout.RawInputKey(g.rec.Job.ID))
		return err
	})
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("check whether the input is stored: %w", err)
	}
	return true, nil
}

// lookInterval is the time between two checks whether a download on another node has
// ended.
const lookInterval = time.Second

// waitForOtherDownload waits until the node that started the download has stored the input. That node
// no longer owns the job, or it is an earlier process at this node's address.
func (g *ingester) waitForOtherDownload(ctx context.Context) error {
	heard := time.Now()
	for {
		running, err := g.DownloadsAt(ctx, g.rec.Downloader, g.rec.Job.ID)
		switch {
		case running:
			heard = time.Now()
		case err != nil && time.Since(heard) < g.Silence: // the other node may still be downloading
			running = true
		}
		there, err := g.isInputStored(ctx) // after DownloadsAt: the download may have ended since
		switch {
		case there || err != nil:
			return err
		case !running:
			return rowmill.Failf(rowmill.CodeDownloadFailed,
				"The node that was downloading the input stopped before the whole input had arrived, and an input is downloaded only once. Submit the job again with a fresh URL.")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookInterval):
		}
	}
}

// fetch downloads the input. The download continues even if this node loses the job
// meanwhile. If the job may run rows early, the input is cut into shards during the
// download.
func (g *ingester) fetch(ctx context.Context) error {
	job, url := g.rec.Job.ID, g.rec.Spec.URL
	d, err := g.Downloads.begin(job)
	if err != nil {
		return err
	}
	if g.Ready != nil && len(g.spec.Keep) == 0 { // keepColumns needs the stored download
		if leave, ok := g.Stream(); ok {
			defer leave()
			d.tail = newDownloadTail(tailBytes, tailPatience)
		}
	}
	// Writes with this context are retried while the bucket fails. Meanwhile this node reads
	// nothing from the server that sends the input.
	patient, done := g.Patient(d.ctx)
	w, err := g.prepareDownload(ctx, patient)
	if err != nil {
		done()
		g.Downloads.remove(job, d, err)
		return err
	}
	g.Downloads.run(ctx, job, d, func() error {
		defer done()
		return d.fetch(g.Downloader, url, w)
	})
	if d.tail == nil {
		return d.wait(ctx)
	}
	if err := g.cutDuringDownload(ctx, d); err != nil {
		return err
	}
	err = d.wait(ctx)
	if g.whole.Rows == 0 {
		return err
	}
	if err == nil && d.stored {
		g.dropDownload(ctx)
	}
	return nil
}

// fetch downloads a URL and stores the content, unless stored shards replace the
// content.
func (d *download) fetch(from Downloader, url string, w blob.Writer) error {
	defer w.Abort()
	raw := input.NewCompressor(w)
	meter := &stallMeter{w: raw, download: d}
	if _, err := from.Fetch(d.ctx, url, meter); err != nil {
		return meter.explainStall(err)
	}
	if err := raw.Close(); err != nil {
		return fmt.Errorf("write input object: %w", err)
	}
	if d.tail != nil && d.tail.finishWriting(d.ctx) {
		return nil
	}
	if _, err := w.Commit(); err != nil {
		return fmt.Errorf("commit input object: %w", err)
	}
	d.stored = true
	return nil
}

// prepareDownload opens the object for the input, and then records that this node has started
// the download. The order matters: if the object cannot be opened, another node may
// still start the download.
func (g *ingester) prepareDownload(ctx, patient context.Context) (w blob.Writer, err error) {
	err = g.Wait(ctx, func() (err error) {
		w, err = g.Bucket.Create(patient, layout.RawInputKey(g.rec.Job.ID), layout.Bytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create input object: %w", err)
	}
	if err := g.updateRecord(ctx, func(r *store.Record, now time.Time) {
		r.DownloadStarted, r.Downloader = &now, g.Address
		_ = r.Job.Become(rowmill.StatusStarting, now) // fails if an earlier owner has set a later status
		r.SetMessage(downloading, false, now)
	}); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// A stallMeter passes bytes to another writer, measures the longest write, and updates
// the progress of the download.
type stallMeter struct {
	w        io.Writer
	download *download
	longest  time.Duration // duration of the longest write
}

var _ input.Expecter = (*stallMeter)(nil)

// Expect stores the size of the input in bytes, as the server announced it.
func (h *stallMeter) Expect(bytes int64) { h.download.size.Store(bytes) }

func (h *stallMeter) Write(p []byte) (int, error) {
	began := time.Now()
	n, err := h.w.Write(p)
	h.longest = max(h.longest, time.Since(began))
	h.download.came.Add(int64(n))
	if h.download.tail != nil {
		h.download.tail.write(h.download.ctx, p[:n])
	}
	return n, err
}

// explainStall returns err, the error of a download. If a write to our object storage took
// so long that the server may have closed the connection, explainStall adds this to the
// message.
func (h *stallMeter) explainStall(err error) error {
	var failure *rowmill.Failure
	if h.longest < patienceOfServers || !errors.As(err, &failure) || failure.Code != rowmill.CodeDownloadFailed {
		return err
	}
	explained := *failure
	explained.Message += fmt.Sprintf(" Meanwhile the service's object storage could not be used for %v, so the service read nothing from the server.", h.longest.Round(time.Second))
	return &explained
}

// patienceOfServers is how long any server that sends a file waits at least while the
// receiver reads nothing.
const patienceOfServers = 10 * time.Second

// updateRecord changes the record of the job in the store with set, and updates g.rec.
func (g *ingester) updateRecord(ctx context.Context, set func(*store.Record, time.Time)) error {
	now := g.Clock().UTC()
	var updated store.Record
	err := g.Wait(ctx, func() (err error) {
		updated, err = g.Jobs.Update(ctx, g.fence, func(r *store.Record) error {
			set(r, now)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("record the state of the download: %w", err)
	}
	*g.rec = updated
	return nil
}
