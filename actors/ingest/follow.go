package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/input"
	"github.com/rowmill/rowmill/internal/shard"
	"github.com/rowmill/rowmill/results"
)

// tailBytes is the number of bytes of a running download that stay in memory for a
// reader: about as much as arrives during a write to a slow disk or a wait for a
// processor.
const tailBytes = 8 << 20

// tailPatience is the total time for which a download waits for its reader. It is
// enough for some gigabytes over a fast line, and no longer than any server waits.
const tailPatience = patienceOfServers

// A downloadTail has the last bytes of a running download for its reader. The writer waits for
// the reader, but only for a limited time. After that, bytes that were not read are
// overwritten, and the reader must read them from the stored object.
type downloadTail struct {
	patience time.Duration // time for which the writer may still wait; only the writer uses it
	left     chan struct{} // closed when the reader has ended
	taken    chan struct{} // gets a token after each read
	whole    chan struct{} // closed when the download is complete
	settled  chan bool     // gets true if shards have all rows, false if the download must be stored

	mu    sync.Mutex
	ring  []byte        // byte n of the download is at n modulo len(ring)
	came  int64         // number of bytes received
	read  int64         // number of bytes read
	grown chan struct{} // closed when more bytes arrive
}

// newDownloadTail returns a tail that has the last bytes bytes and whose writer waits for at
// most patience in total.
func newDownloadTail(bytes int, patience time.Duration) *downloadTail {
	return &downloadTail{
		patience: patience, left: make(chan struct{}), taken: make(chan struct{}, 1),
		whole: make(chan struct{}), settled: make(chan bool, 1),
		ring: make([]byte, bytes), grown: make(chan struct{}),
	}
}

// write adds the next bytes of the download.
func (t *downloadTail) write(ctx context.Context, p []byte) {
	for len(p) > 0 {
		n := t.put(p, t.patience <= 0)
		if p = p[n:]; n == 0 {
			t.wait(ctx)
		}
	}
}

// put adds as many bytes of p as fit without overwriting unread bytes, and returns
// their number. If overwrite is true, put adds all of p.
func (t *downloadTail) put(p []byte, overwrite bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := int64(len(t.ring))
	room := int64(len(p))
	if !overwrite {
		room = min(room, size-(t.came-t.read))
	}
	if room == 0 {
		return 0
	}
	for at := max(0, room-size); at < room; { // bytes before these would be overwritten at once
		at += int64(copy(t.ring[(t.came+at)%size:], p[at:room]))
	}
	t.came += room
	close(t.grown)
	t.grown = make(chan struct{})
	return int(room)
}

// wait waits until the reader has read bytes. If the reader has ended, ctx ends, or
// patience is used up, wait returns and later writes do not wait any more.
func (t *downloadTail) wait(ctx context.Context) {
	began := time.Now()
	select {
	case <-t.taken:
		t.patience -= time.Since(began)
		return
	case <-t.left:
	case <-ctx.Done():
	case <-time.After(t.patience):
	}
	t.patience = 0
}

// readAtOffset copies bytes of the download from offset at. If they have not arrived yet, n is
// 0, and the channel grown is closed when more bytes arrive. lost is true if the bytes
// were overwritten.
func (t *downloadTail) readAtOffset(p []byte, at int64) (n int, lost bool, grown <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := int64(len(t.ring))
	if t.came-at > size {
		return 0, true, nil
	}
	for left := t.came - at; left > 0 && n < len(p); {
		from := (at + int64(n)) % size
		got := copy(p[n:], t.ring[from:min(from+left, size)])
		n += got
		left -= int64(got)
	}
	t.read = at + int64(n)
	select {
	case t.taken <- struct{}{}:
	default:
	}
	return n, false, t.grown
}

// settlePatience is how long a complete download may be only in memory and in a
// temporary file, while its last rows are cut into shards. A working store needs about
// this time.
const settlePatience = time.Second

// finishWriting tells the reader that all bytes have arrived. It then waits for settle, and
// returns true if the download need not be stored because shards have all its rows.
func (t *downloadTail) finishWriting(ctx context.Context) bool {
	close(t.whole)
	select {
	case replaced := <-t.settled:
		return replaced
	case <-ctx.Done():
	case <-time.After(settlePatience):
	}
	return false
}

// reportReplaced tells end whether the stored shards have all rows of the download, so that the
// download itself need not be stored. Only the first call has an effect.
func (t *downloadTail) reportReplaced(replaced bool) {
	select {
	case t.settled <- replaced:
	default:
	}
}

// A downloadFollower reads a download to its end while the download runs. If the follower is
// too slow, it reads the remaining bytes from the stored input.
type downloadFollower struct {
	ctx      context.Context //nolint:containedctx // a follower lives as long as this context
	download *download
	bucket   blob.Bucket
	key      string                  // key of the stored input
	rest     func(wait func()) error // see processorTurn.releaseDuring

	at     int64       // number of bytes read so far
	object blob.Object // the stored input; nil before the follower needs it
	stored io.Reader   // the decompressed content of object
}

func (f *downloadFollower) Read(p []byte) (int, error) {
	for f.stored == nil {
		n, lost, grown := f.download.tail.readAtOffset(p, f.at)
		if f.at += int64(n); n > 0 || len(p) == 0 {
			return n, nil
		}
		if lost {
			if err := f.openStored(); err != nil {
				return 0, fmt.Errorf("open input: %w", err)
			}
			continue
		}
		whole, err := f.wait(grown)
		switch {
		case err != nil:
			return 0, err
		case whole:
			n, lost, _ = f.download.tail.readAtOffset(p, f.at) // the last bytes
			if f.at += int64(n); n > 0 {
				return n, nil
			}
			if !lost {
				return 0, io.EOF
			}
		}
	}
	return f.stored.Read(p)
}

// openStored waits until the input is stored, and continues to read it at the same
// byte.
func (f *downloadFollower) openStored() (err error) {
	f.download.tail.reportReplaced(false)
	var ended error
	err = f.rest(func() { ended = f.download.wait(f.ctx) })
	if err = errors.Join(ended, err); err != nil {
		return err
	}
	if f.object, err = f.bucket.Open(f.ctx, f.key); err != nil {
		return err
	}
	if f.stored, err = input.OpenOriginal(blob.NewReader(f.object)); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, f.stored, f.at)
	return err
}

// wait waits until more bytes arrive; whole is true if all bytes have arrived.
func (f *downloadFollower) wait(grown <-chan struct{}) (whole bool, err error) {
	restErr := f.rest(func() {
		select {
		case <-grown:
		case <-f.download.tail.whole:
			whole = true
		case <-f.download.done:
			whole, err = f.download.err == nil, f.download.err
		case <-f.ctx.Done():
			err = f.ctx.Err()
		}
	})
	if err == nil {
		err = restErr
	}
	return whole, err
}

// Close tells the download that it has no reader any more. Call it once.
func (f *downloadFollower) Close() error {
	close(f.download.tail.left)
	if f.object == nil {
		return nil
	}
	return f.object.Close()
}

// cutDuringDownload cuts the input into shards during the download. If this succeeds, the shards
// replace the download. If it fails early, cutDuringDownload usually returns no error: the
// stored input is cut later.
func (g *ingester) cutDuringDownload(ctx context.Context, d *download) error {
	whole, err := g.follow(ctx, d)
	if err == nil {
		err = g.replaceDownload(ctx, whole)
	}
	d.tail.reportReplaced(err == nil)
	var failure *rowmill.Failure
	switch {
	case err == nil:
		g.whole = whole
	case d.failed() || !errors.As(err, &failure): // the caller gets the download's error, or cuts the stored input
	case failure.Code == rowmill.CodeInvalidInputFile:
		return failure
	default: // the download goes on: another job may continue this job and needs the whole input
		g.failure = failure
	}
	return nil
}

// follow cuts a running download into shards, to the end of the download.
func (g *ingester) follow(ctx context.Context, d *download) (whole shard.Manifest, err error) {
	g.follower = &downloadFollower{
		ctx: ctx, download: d, bucket: g.Bucket, key: layout.RawInputKey(g.id),
		rest: func(wait func()) error { wait(); return nil },
	}
	var rows input.Reader
	opts, err := g.options(&g.spec)
	if err == nil {
		rows, err = input.OpenStream(g.follower, opts)
	}
	if err == nil {
		g.size = d.size.Load()
		whole, err = g.cutRows(ctx, rows, results.FieldColumns(g.spec.Function))
	}
	err = errors.Join(err, g.follower.Close())
	g.follower = nil
	return whole, err
}

// replaceDownload writes the list of shards and then records the end of the download.
// In this order a later owner always finds a complete input.
func (g *ingester) replaceDownload(ctx context.Context, whole shard.Manifest) error {
	if err := g.Wait(ctx, func() error { return g.writeManifestAndLists(ctx, &whole) }); err != nil {
		return err
	}
	return g.markDownloaded(ctx)
}
