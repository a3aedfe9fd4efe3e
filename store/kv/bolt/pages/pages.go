// Package pages looks over a bbolt file before bbolt opens it: bbolt takes what it reads for
// whole, and ends the process over a page that is damaged. The package knows how bbolt lays
// out its pages, and nothing of what is in them.
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

// Check returns an error that names the first damaged page of a bbolt file. Pages have no
// checksums: Check sees that the pages form a tree with ordered keys, no more.
func Check(file *os.File) error {
	last, err := readNewestMeta(file)
	if err != nil || !last.valid() {
		return err // without a meta page bbolt refuses the file itself
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if least := int64(last.pages()) * int64(last.pageSize()); last.pages() > maxPages || info.Size() < least {
		return fmt.Errorf("it has %d bytes where %d pages of %d were written", info.Size(), last.pages(), last.pageSize())
	}
	w := walk{file: file, pageSize: last.pageSize(), seen: make([]bool, last.pages())}
	w.next = []place{{id: last.root()}}
	for len(w.next) > 0 {
		at := w.next[len(w.next)-1]
		w.next = w.next[:len(w.next)-1]
		if err := w.visit(at); err != nil {
			return fmt.Errorf("page %d: %w", at.id, err)
		}
	}
	return nil
}

// maxPages bounds a file; the largest that bbolt maps has 2^36 pages.
const maxPages = 1 << 36

// A walk goes over the pages of a file, each of which has one place in it.
type walk struct {
	file     io.ReaderAt
	pageSize int
	seen     []bool
	next     []place
	scratch  []byte
}

// A place is where a page is named, and what keys belong there: from the first on, and
// below the second; nil is no bound.
type place struct {
	id          uint64
	first, next []byte
}

func (w *walk) visit(at place) error {
	if at.id < 2 || at.id >= uint64(len(w.seen)) {
		return fmt.Errorf("the file has %d", len(w.seen))
	}
	p, err := w.read(at.id)
	if err != nil {
		return err
	}
	for further := range uint64(len(p) / w.pageSize) {
		if id := at.id + further; id >= uint64(len(w.seen)) || w.seen[id] {
			return errors.New("it is in two places, or goes on beyond the file")
		}
		w.seen[at.id+further] = true
	}
	if p.kind() == kindBranch {
		return w.branch(at, p)
	}
	if err := w.buckets(p); err != nil {
		return err
	}
	keys := keyOrder{place: at}
	err = p.leaf(func(_ uint32, key, _ []byte) error {
		keys.see(key)
		return nil
	})
	return cmp.Or(err, keys.wrong)
}

// read reads a page. The result is good until the next read.
func (w *walk) read(id uint64) (page, error) {
	offset := int64(id) * int64(w.pageSize)
	w.scratch = slices.Grow(w.scratch[:0], w.pageSize)[:w.pageSize]
	if _, err := w.file.ReadAt(w.scratch, offset); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	n, err := length(w.scratch, id, w.pageSize)
	if err != nil || n == w.pageSize {
		return w.scratch, err
	}
	w.scratch = slices.Grow(w.scratch, n-w.pageSize)[:n]
	if _, err := w.file.ReadAt(w.scratch[w.pageSize:], offset+int64(w.pageSize)); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return w.scratch, nil
}

// branch puts what is below a branch on the way.
func (w *walk) branch(at place, p page) error {
	if p.count() == 0 {
		return errors.New("it is a branch without pages")
	}
	keys, from := keyOrder{place: at}, len(w.next)
	err := p.branch(func(key []byte, id uint64) {
		keys.see(key)
		w.next = append(w.next, place{id: id, first: bytes.Clone(key), next: at.next})
	})
	for i := from; i+1 < len(w.next); i++ {
		w.next[i].next = w.next[i+1].first
	}
	return cmp.Or(err, keys.wrong)
}

// buckets puts the buckets in a leaf on the way.
func (w *walk) buckets(p page) error {
	return p.buckets(func(name []byte, root uint64, inline page) error {
		switch {
		case root != 0:
			w.next = append(w.next, place{id: root})
			return nil
		case len(inline) < pageHeader || inline.kind() != kindLeaf:
			return fmt.Errorf("bucket %q has no page", name)
		}
		return w.buckets(inline)
	})
}

// A keyOrder sees the keys of a page one after the other.
type keyOrder struct {
	place
	last  []byte
	wrong error
}

func (k *keyOrder) see(key []byte) {
	if bytes.Compare(key, k.first) < 0 || k.next != nil && bytes.Compare(key, k.next) >= 0 || k.last != nil && bytes.Compare(key, k.last) <= 0 {
		k.wrong = errors.New("its keys are those of another page, or out of order")
	}
	k.last = key
}
