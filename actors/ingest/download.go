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

// A Downloader fetches the content of a URL, as *input.Downloader does.
type Downloader interface {
	Fetch(ctx context.Context, url string, w io.Writer) (int64, error)
}

// download stores an input from a URL. The start is recorded before the first request, so
// no second node ever sends a request. If the object of the input exists, it is complete:
// the node that stored it may have crashed or lost the job before it could record this.
func (g *ingester) download(ctx context.Context) error {
	if g.rec.DownloadFinished != nil {
		return nil
	}
	if err := g.obtain(ctx); err != nil || g.rec.DownloadFinished != nil {
		return err
	}
	return g.markDownloaded(ctx)
}

func (g *ingester) markDownloaded(ctx context.Context) error {
	return g.mark(ctx, func(r *store.Record, now time.Time) {
		if r.DownloadStarted == nil {
			r.DownloadStarted = &now
		}
		r.DownloadFinished = &now
		if r.Job.Message == "" || isDownloading(r.Job.Message) { // otherwise the job already runs or waits
			r.Say(Reading, false, now)
		}
	})
}

// obtain returns when the complete input is stored.
func (g *ingester) obtain(ctx context.Context) error {
	if d := g.Downloads.of(g.rec.Job.ID); d != nil { // this node started it under an earlier lease
		return d.wait(ctx)
	}
	there, err := g.stored(ctx)
	switch {
	case there || err != nil:
		return err
	case g.rec.DownloadStarted != nil:
		return g.await(ctx)
	}
	return g.fetch(ctx)
}

// stored reports whether the complete input is stored.
func (g *ingester) stored(ctx context.Context) (bool, error) {
	err := g.Wait(ctx, func() error {
		_, err := g.Bucket.Stat(ctx, layout.Raw(g.rec.Job.ID))
		return err
	})
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for the input: %w", err)
	}
	return true, nil
}

// lookInterval is the time between checks of a download on another node.
const lookInterval = time.Second

// await waits until the node that started the download has stored the input. That node
// no longer owns the job, or it was an earlier process at this address.
func (g *ingester) await(ctx context.Context) error {
	heard := time.Now()
	for {
		running, err := g.DownloadsAt(ctx, g.rec.Downloader, g.rec.Job.ID)
		switch {
		case running:
			heard = time.Now()
		case err != nil && time.Since(heard) < g.Silence: // the other node may still be downloading
			running = true
		}
		there, err := g.stored(ctx) // checked after the answer, because the download may just have ended
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

// fetch downloads the input. The input is stored even if this node loses the job
// meanwhile. If the rows may run early, they are cut into shards during the download.
func (g *ingester) fetch(ctx context.Context) error {
	job, url := g.rec.Job.ID, g.rec.Spec.URL
	d, err := g.Downloads.begin(job)
	if err != nil {
		return err
	}
	if g.Ready != nil {
		if leave, ok := g.Stream(); ok {
			defer leave()
			d.tail = newTail(tailBytes, tailPatience)
		}
	}
	// If the bucket fails, writes with this context are retried for a while. Meanwhile the
	// server that sends the input must wait.
	patient, done := g.Patient(d.ctx)
	w, err := g.prepare(ctx, patient)
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
	if err := g.cutAlong(ctx, d); err != nil {
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

// fetch downloads a URL and stores the content, unless shards replace the stored content.
func (d *download) fetch(from Downloader, url string, w blob.Writer) error {
	defer w.Abort()
	raw := input.NewCompressor(w)
	meter := &stallMeter{w: raw, download: d}
	if _, err := from.Fetch(d.ctx, url, meter); err != nil {
		return meter.addStall(err)
	}
	if err := raw.Close(); err != nil {
		return fmt.Errorf("write input object: %w", err)
	}
	if d.tail != nil && d.tail.end(d.ctx) {
		return nil
	}
	if _, err := w.Commit(); err != nil {
		return fmt.Errorf("commit input object: %w", err)
	}
	d.stored = true
	return nil
}

// prepare opens the object for the input, and then records that this node has started the
// download. The order matters: if the object cannot be opened, another node may still
// start the download.
func (g *ingester) prepare(ctx, patient context.Context) (w blob.Writer, err error) {
	err = g.Wait(ctx, func() (err error) {
		w, err = g.Bucket.Create(patient, layout.Raw(g.rec.Job.ID), layout.Bytes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create input object: %w", err)
	}
	if err := g.mark(ctx, func(r *store.Record, now time.Time) {
		r.DownloadStarted, r.Downloader = &now, g.Address
		_ = r.Job.Become(rowmill.StatusStarting, now) // refused if an earlier owner has set a later status
		r.Say(downloading, false, now)
	}); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// A stallMeter passes bytes to another writer. It measures the longest write, and reports
// the progress to the download.
type stallMeter struct {
	w        io.Writer
	download *download
	longest  time.Duration // of a write
}

var _ input.Expecter = (*stallMeter)(nil)

// Expect notes the size of the input in bytes.
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

// addStall returns the error of a download. If our own object storage stalled the
// connection, it adds this to the message.
func (h *stallMeter) addStall(err error) error {
	var failure *rowmill.Failure
	if h.longest < patienceOfServers || !errors.As(err, &failure) || failure.Code != rowmill.CodeDownloadFailed {
		return err
	}
	explained := *failure
	explained.Message += fmt.Sprintf(" Meanwhile the service's object storage could not be used for %v, so the service read nothing from the server.", h.longest.Round(time.Second))
	return &explained
}

// patienceOfServers is how long a server that sends a file certainly waits until more of
// the file is read.
const patienceOfServers = 10 * time.Second

// mark changes the record of the job.
func (g *ingester) mark(ctx context.Context, set func(*store.Record, time.Time)) error {
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
		return fmt.Errorf("record download: %w", err)
	}
	*g.rec = updated
	return nil
}
