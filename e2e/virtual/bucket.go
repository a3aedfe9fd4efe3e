package virtual

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/internal/retry"
)

// A shelf is the shared bucket of all nodes. Like on S3, objects appear at once, and a reader
// gets an error after its object was replaced or deleted.
type shelf struct {
	mu      sync.Mutex
	objects map[string]*item
	removed func(key string) // called for each removed object; may be nil
}

// An item is one version of an object.
type item struct {
	info  blob.ObjectInfo
	data  []byte
	shown time.Time // when readers see it; zero: at once
}

func newShelf() *shelf { return &shelf{objects: make(map[string]*item)} }

// ownShelf returns a shelf that belongs to the deployment of the nodes.
func ownShelf() *shelf {
	s := newShelf()
	s.put(layout.Deployment, []byte("{}"))
	return s
}

func (s *shelf) get(key string) (*item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.objects[key]; i != nil && !time.Now().Before(i.shown) {
		return i, nil
	}
	return nil, fmt.Errorf("object %s: %w", key, rowmill.ErrNotFound)
}

func (s *shelf) put(key string, data []byte) blob.ObjectInfo {
	sum := md5.Sum(data) //nolint:gosec // as S3 makes its tags
	i := &item{info: blob.ObjectInfo{Key: key, Size: int64(len(data)), ETag: `"` + hex.EncodeToString(sum[:]) + `"`, Modified: time.Now()}, data: data}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = i
	return i.info
}

// spoil does to an object that was just acknowledged what a fault says.
func (s *shelf) spoil(key string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.objects[key]
	if i == nil {
		return
	}
	switch f.How {
	case "lost":
		delete(s.objects, key)
	case "cut":
		half := *i
		half.data = i.data[:len(i.data)/2]
		half.info.Size = int64(len(half.data))
		s.objects[key] = &half
	case "hidden":
		late := *i
		late.shown = time.Now().Add(time.Duration(f.For))
		s.objects[key] = &late
	}
}

func (s *shelf) remove(match func(key string) bool) {
	s.mu.Lock()
	var gone []string
	for key := range s.objects {
		if match(key) {
			gone = append(gone, key)
			delete(s.objects, key)
		}
	}
	s.mu.Unlock()
	slices.Sort(gone)
	for _, key := range gone {
		if s.removed != nil {
			s.removed(key)
		}
	}
}

// list returns the objects with a prefix, by key.
func (s *shelf) list(prefix string) []blob.ObjectInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []blob.ObjectInfo
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) {
			infos = append(infos, s.objects[key].info)
		}
	}
	return infos
}

// A bucket is the access of a process to the shelf.
type bucket struct {
	shelf *shelf
	run   func(ctx context.Context, e effect) error

	mu      sync.Mutex
	writers map[*writer]bool
}

var _ blob.Bucket = (*bucket)(nil)

func newBucket(s *shelf, run func(context.Context, effect) error) *bucket {
	return &bucket{shelf: s, run: run, writers: make(map[*writer]bool)}
}

func (b *bucket) call(ctx context.Context, kind, key string, writes bool, do func() error) error {
	return b.run(ctx, effect{kind: "blob." + kind, key: short(key), object: key, writes: writes, do: do})
}

func (b *bucket) Name() string { return "shelf" }

// MinStorageCopySize allows joins of parts of any size.
func (b *bucket) MinStorageCopySize() int64 { return 1 }

func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return blob.CheckPrefix(prefix)
}

func (b *bucket) Create(ctx context.Context, key, contentType string) (blob.Writer, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key), blob.CheckContentType(contentType)); err != nil {
		return nil, fmt.Errorf("create object: %w", err)
	}
	w := &writer{bucket: b, ctx: ctx, key: key}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writers[w] = true
	return w, nil
}

// A writer collects the bytes of an object.
type writer struct {
	bucket *bucket
	ctx    context.Context
	key    string
	data   bytes.Buffer
	ended  bool
	barred bool // its prefix was deleted
}

var errEnded = errors.New("the writer has ended")

func (w *writer) Write(p []byte) (int, error) {
	switch {
	case w.ended:
		return 0, errEnded
	case w.ctx.Err() != nil:
		return 0, w.ctx.Err()
	}
	return w.data.Write(p)
}

func (w *writer) Commit() (blob.ObjectInfo, error) {
	if w.ended {
		return blob.ObjectInfo{}, errEnded
	}
	w.ended = true
	defer w.Abort()
	var put blob.ObjectInfo // a late effect sets it after its caller has returned
	try := func() error {
		if w.isBarred() {
			return fmt.Errorf("its prefix was deleted: %w", rowmill.ErrNotFound)
		}
		return w.bucket.call(w.ctx, "put", w.key, true, func() error {
			put = w.bucket.shelf.put(w.key, bytes.Clone(w.data.Bytes()))
			return nil
		})
	}
	err := w.patiently(try)
	if err != nil {
		return blob.ObjectInfo{}, fmt.Errorf("commit object %s: %w", w.key, err)
	}
	return put, nil
}

// patiently runs an operation. If the context of the writer is patient, it repeats the
// operation while a retry may help.
func (w *writer) patiently(do func() error) error {
	if !retry.IsUnlimited(w.ctx) {
		return do()
	}
	err := retry.Storage.Do(w.ctx, do, func(err error) bool { return errors.Is(err, rowmill.ErrUnavailable) }, nil)
	if err != nil && w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	return err
}

func (w *writer) Abort() {
	w.bucket.mu.Lock()
	defer w.bucket.mu.Unlock()
	w.ended = true
	delete(w.bucket.writers, w)
}

func (w *writer) isBarred() bool {
	w.bucket.mu.Lock()
	defer w.bucket.mu.Unlock()
	return w.barred
}

func (b *bucket) Open(ctx context.Context, key string) (blob.Object, error) {
	if err := blob.CheckKey(key); err != nil {
		return nil, fmt.Errorf("open object: %w", err)
	}
	var o *object
	err := b.call(ctx, "open", key, false, func() error {
		i, err := b.shelf.get(key)
		o = &object{bucket: b, ctx: ctx, item: i}
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// An object reads one item while the item has its key. Its first block comes with the
// opening.
type object struct {
	bucket *bucket
	ctx    context.Context
	*item
}

// firstBlock is the number of bytes that come with the opening of an object.
const firstBlock = 64 << 10

func (o *object) Size() int64           { return o.info.Size }
func (o *object) Info() blob.ObjectInfo { return o.info }
func (o *object) Close() error          { return nil }

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, err
	}
	if off+int64(len(p)) > firstBlock && o.Size() > firstBlock {
		if now, err := o.bucket.shelf.get(o.info.Key); err != nil || now.info.ETag != o.info.ETag {
			return 0, blob.ErrLost
		}
	}
	if off >= int64(len(o.data)) {
		return 0, io.EOF
	}
	n := copy(p, o.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (b *bucket) Stat(ctx context.Context, key string) (info blob.ObjectInfo, err error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.ObjectInfo{}, fmt.Errorf("stat object: %w", err)
	}
	err = b.call(ctx, "stat", key, false, func() error {
		i, err := b.shelf.get(key)
		if err == nil {
			info = i.info
		}
		return err
	})
	return info, err
}

func (b *bucket) List(ctx context.Context, prefix string) (infos []blob.ObjectInfo, err error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	err = b.call(ctx, "list", prefix, false, func() error {
		infos = b.shelf.list(prefix)
		return nil
	})
	return infos, err
}

func (b *bucket) Folders(ctx context.Context, prefix, after string, limit int) (names []string, err error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list folders: %w", err)
	}
	if limit < 1 {
		return nil, fmt.Errorf("list folders: the limit is %d and must be positive", limit)
	}
	err = b.call(ctx, "folders", prefix, false, func() error {
		for _, info := range b.shelf.list(prefix) {
			name, _, deeper := strings.Cut(info.Key[len(prefix):], "/")
			// In the order of their keys: "a-" comes before "a/".
			if deeper && (after == "" || name+"/" > after+"/") && !slices.Contains(names, name) && len(names) < limit {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, err
}

func (b *bucket) Copy(ctx context.Context, from, to string) error {
	if err := errors.Join(blob.CheckKey(from), blob.CheckKey(to)); err != nil {
		return fmt.Errorf("copy object: %w", err)
	}
	return b.call(ctx, "copy", to, true, func() error {
		i, err := b.shelf.get(from)
		if err == nil {
			b.shelf.put(to, i.data)
		}
		return err
	})
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	if err := blob.CheckKey(key); err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	return b.call(ctx, "delete", key, true, func() error {
		b.shelf.remove(func(k string) bool { return k == key })
		return nil
	})
}

func (b *bucket) DeletePrefix(ctx context.Context, prefix string) error {
	if err := blob.CheckPrefix(prefix); err != nil {
		return fmt.Errorf("delete objects: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	for w := range b.writers {
		w.barred = w.barred || strings.HasPrefix(w.key, prefix)
	}
	b.mu.Unlock()
	return b.call(ctx, "delete-prefix", prefix, true, func() error {
		b.shelf.remove(func(k string) bool { return strings.HasPrefix(k, prefix) })
		return nil
	})
}

// SignURL signs nothing: readers use the handler.
func (b *bucket) SignURL(ctx context.Context, method, key, filename string, expires time.Duration) (string, error) {
	if err := errors.Join(ctx.Err(), blob.CheckKey(key), blob.CheckSignRequest(method, filename, expires)); err != nil {
		return "", err
	}
	return "shelf://" + key, nil
}
