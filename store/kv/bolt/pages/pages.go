// Package pages checks a bbolt file before bbolt opens it, because bbolt trusts its
// file and crashes the process on a damaged page. The package knows the page layout of
// bbolt, but not the content of the pages.
package pages

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Check returns an error that names the first damaged page of a bbolt file. Pages have
// no checksums: Check only verifies that the pages form a tree with ordered keys.
func Check(file *os.File) error {
	last, err := readNewestMeta(file)
	if err != nil || !last.isValid() {
		return err // bbolt itself refuses a file without a valid meta page
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if least := int64(last.pages()) * int64(last.pageSize()); last.pages() > maxPages || info.Size() < least {
		return fmt.Errorf("it has %d bytes, but its meta page claims %d pages of %d bytes", info.Size(), last.pages(), last.pageSize())
	}
	w := pageWalker{file: file, pageSize: last.pageSize(), seen: make([]bool, last.pages())}
	w.next = []pageRef{{id: last.root()}}
	for len(w.next) > 0 {
		at := w.next[len(w.next)-1]
		w.next = w.next[:len(w.next)-1]
		if err := w.visitPage(at); err != nil {
			return fmt.Errorf("page %d: %w", at.id, err)
		}
	}
	return nil
}

// maxPages limits the number of pages of a file. bbolt can map a file of at most 2^36
// pages.
const maxPages = 1 << 36

// A pageWalker visits the pages of a file. Each page must be reached only once.
type pageWalker struct {
	file     io.ReaderAt
	pageSize int
	seen     []bool
	next     []pageRef
	scratch  []byte
}

// A pageRef is a reference to a page, with the range of keys that the page may have: from
// first, included, to next, excluded. A nil bound means no limit.
type pageRef struct {
	id          uint64
	first, next []byte
}

func (w *pageWalker) visitPage(at pageRef) error {
	if at.id < 2 || at.id >= uint64(len(w.seen)) {
		return fmt.Errorf("the file has only %d pages", len(w.seen))
	}
	p, err := w.read(at.id)
	if err != nil {
		return err
	}
	for further := range uint64(len(p) / w.pageSize) {
		if id := at.id + further; id >= uint64(len(w.seen)) || w.seen[id] {
			return errors.New("it is referenced twice, or extends beyond the file")
		}
		w.seen[at.id+further] = true
	}
	if p.kind() == kindBranch {
		return w.checkBranch(at, p)
	}
	if err := w.queueBuckets(p); err != nil {
		return err
	}
	keys := keyOrderChecker{pageRef: at}
	err = p.eachElement(func(_ bool, key, _ []byte) error {
		keys.checkKey(key)
		return nil
	})
	return cmp.Or(err, keys.wrong)
}

// read reads a page. The result is valid until the next read.
func (w *pageWalker) read(id uint64) (page, error) {
	offset := int64(id) * int64(w.pageSize)
	w.scratch = slices.Grow(w.scratch[:0], w.pageSize)[:w.pageSize]
	if _, err := w.file.ReadAt(w.scratch, offset); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	n, err := pageBytes(w.scratch, id, w.pageSize)
	if err != nil || n == w.pageSize {
		return w.scratch, err
	}
	w.scratch = slices.Grow(w.scratch, n-w.pageSize)[:n]
	if _, err := w.file.ReadAt(w.scratch[w.pageSize:], offset+int64(w.pageSize)); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return w.scratch, nil
}

// checkBranch adds the child pages of a branch page to the pages to visit, and checks the
// order of the keys.
func (w *pageWalker) checkBranch(at pageRef, p page) error {
	if p.count() == 0 {
		return errors.New("it is a branch without pages")
	}
	keys, from := keyOrderChecker{pageRef: at}, len(w.next)
	err := p.eachChild(func(key []byte, id uint64) {
		keys.checkKey(key)
		w.next = append(w.next, pageRef{id: id, first: bytes.Clone(key), next: at.next})
	})
	for i := from; i+1 < len(w.next); i++ {
		w.next[i].next = w.next[i+1].first
	}
	return cmp.Or(err, keys.wrong)
}

// queueBuckets adds the root pages of the buckets in a leaf to the pages to visit.
func (w *pageWalker) queueBuckets(p page) error {
	return p.eachBucket(func(name []byte, root uint64, inline page) error {
		switch {
		case root != 0:
			w.next = append(w.next, pageRef{id: root})
			return nil
		case len(inline) < pageHeader || inline.kind() != kindLeaf:
			return fmt.Errorf("bucket %q has no page", name)
		}
		return w.queueBuckets(inline)
	})
}

// A keyOrderChecker checks that the keys of a page are in order and in the range of its pageRef.
type keyOrderChecker struct {
	pageRef
	last  []byte
	wrong error
}

func (k *keyOrderChecker) checkKey(key []byte) {
	if bytes.Compare(key, k.first) < 0 || k.next != nil && bytes.Compare(key, k.next) >= 0 || k.last != nil && bytes.Compare(key, k.last) <= 0 {
		k.wrong = errors.New("its keys belong to another page, or are out of order")
	}
	k.last = key
}
