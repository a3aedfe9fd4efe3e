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
)

// tailBytes is how much of a download is kept for who reads it meanwhile: what comes
// in the time that a slow disk or a turn at the processors takes.
const tailBytes = 8 << 20

// tailPatience is for how long in all a download waits for who reads it: enough that
// one of some gigabytes over a fast line is read as it comes, and as long as a server
// surely stands it.
const tailPatience = patienceOfServers

// A tail is the end of what has come of a download. Who writes waits for who reads,
// but not for long: what was overwritten has to be read where it is stored.
type tail struct {
	patience time.Duration // that is left; for who writes alone
	left     chan struct{} // closed when nobody reads any more
	taken    chan struct{} // has something after each read
	whole    chan struct{} // closed once all has come
	settled  chan bool     // has whether shards stand in its place; false where it has to be stored

	mu    sync.Mutex
	ring  []byte        // byte n of the download is at n modulo its length
	came  int64         // bytes
	read  int64         // of them
	grown chan struct{} // closed when more comes
}

func newTail(bytes int, patience time.Duration) *tail {
	return &tail{
		patience: patience, left: make(chan struct{}), taken: make(chan struct{}, 1),
		whole: make(chan struct{}), settled: make(chan bool, 1),
		ring: make([]byte, bytes), grown: make(chan struct{}),
	}
}

// write takes in what comes next.
func (t *tail) write(ctx context.Context, p []byte) {
	for len(p) > 0 {
		n := t.put(p, t.patience <= 0)
		if p = p[n:]; n == 0 {
			t.wait(ctx)
		}
	}
}

// put takes in the first bytes of p for which there is room, or with over all of
// them, and returns how many those are.
func (t *tail) put(p []byte, over bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := int64(len(t.ring))
	room := int64(len(p))
	if !over {
		room = min(room, size-(t.came-t.read))
	}
	if room == 0 {
		return 0
	}
	for at := max(0, room-size); at < room; { // what is before is overwritten at once
		at += int64(copy(t.ring[(t.came+at)%size:], p[at:room]))
	}
	t.came += room
	close(t.grown)
	t.grown = make(chan struct{})
	return int(room)
}

// wait returns once something was read, or nothing is to be waited for any more.
func (t *tail) wait(ctx context.Context) {
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

// get copies what there is from byte at on. It returns 0 where that has not come
// yet, with what to wait for, or lost where it is not kept any more.
func (t *tail) get(p []byte, at int64) (n int, lost bool, grown <-chan struct{}) {
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

// settlePatience is for how long a download that has come is in memory and a file
// that may be lost, while the last of it is cut: what a store that does its work takes.
const settlePatience = time.Second

// end tells that all has come, and reports whether it need not be stored, since there
// are shards of all of it by now, or as good as now.
func (t *tail) end(ctx context.Context) bool {
	close(t.whole)
	select {
	case stand := <-t.settled:
		return stand
	case <-ctx.Done():
	case <-time.After(settlePatience):
	}
	return false
}

// settle says whether shards stand in place of a download. What was said first holds.
func (t *tail) settle(stand bool) {
	select {
	case t.settled <- stand:
	default:
	}
}

// A follower reads a download while it comes, to its end. Where it has fallen behind
// it has all of it stored and reads that.
type follower struct {
	ctx      context.Context //nolint:containedctx // it lives as long as the reading
	download *download
	bucket   blob.Bucket
	key      string // of what is stored
	rest     func(wait func()) error

	at     int64
	object blob.Object // nil until it has fallen behind
	stored io.Reader   // the same, as it came
}

func (f *follower) Read(p []byte) (int, error) {
	for f.stored == nil {
		n, lost, grown := f.download.tail.get(p, f.at)
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
			n, lost, _ = f.download.tail.get(p, f.at) // what came last
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

// openStored goes on in what is stored, once it is.
func (f *follower) openStored() (err error) {
	f.download.tail.settle(false)
	var ended error
	err = f.rest(func() { ended = f.download.wait(f.ctx) })
	if err = errors.Join(ended, err); err != nil {
		return err
	}
	if f.object, err = f.bucket.Open(f.ctx, f.key); err != nil {
		return err
	}
	if f.stored, err = input.Decompress(blob.NewReader(f.object)); err != nil {
		return err
	}
	_, err = io.CopyN(io.Discard, f.stored, f.at)
	return err
}

// wait returns when more has come, or whole when all has.
func (f *follower) wait(grown <-chan struct{}) (whole bool, err error) {
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

// Close has the download wait no longer. It must be called once.
func (f *follower) Close() error {
	close(f.download.tail.left)
	if f.object == nil {
		return nil
	}
	return f.object.Close()
}

// cutAlong cuts the input while it is downloaded. Where that cannot be, or not to its
// end, there is no error, and what is stored is to be cut. Else the shards stand in
// place of the download.
func (g *ingester) cutAlong(ctx context.Context, d *download) error {
	whole, err := g.follow(ctx, d)
	if err == nil {
		err = g.stand(ctx, whole)
	}
	d.tail.settle(err == nil)
	var failure *rowmill.Failure
	switch {
	case err == nil:
		g.whole = whole
	case d.failed() || !errors.As(err, &failure): // who waits for it hears why, or cuts what is stored
	case failure.Code == rowmill.CodeInvalidInputFile:
		return failure
	default: // another job may continue this one, and needs all of its input
		g.failure = failure
	}
	return nil
}

// follow makes shards of a download to its end.
func (g *ingester) follow(ctx context.Context, d *download) (whole shard.Manifest, err error) {
	g.follower = &follower{
		ctx: ctx, download: d, bucket: g.Bucket, key: layout.Raw(g.id),
		rest: func(wait func()) error { wait(); return nil },
	}
	var rows input.Reader
	opts, err := g.options(&g.spec)
	if err == nil {
		rows, err = input.OpenStream(g.follower, opts)
	}
	if err == nil {
		g.size = d.size.Load()
		whole, err = g.cutRows(ctx, rows, fieldColumns(&g.spec))
	}
	err = errors.Join(err, g.follower.Close())
	g.follower = nil
	return whole, err
}

// stand lists the shards of a download, and records that it has ended: in this order,
// so that there always is what a later owner may read.
func (g *ingester) stand(ctx context.Context, whole shard.Manifest) error {
	if err := g.Wait(ctx, func() error { return g.list(ctx, &whole) }); err != nil {
		return err
	}
	return g.markDownloaded(ctx)
}
