package pages

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// A LostPage is a page of a bucket that cannot be read. Its elements are lost; if a part of the
// page can be read, only some of its elements are lost.
type LostPage struct {
	Bucket string // name of the bucket; empty if the page lists buckets, so that whole buckets may be lost
	Page   uint64
	Err    error
}

// Salvage calls entry with each element that can be read from the buckets of a damaged
// file. An element may still be damaged: pages have no checksums. Salvage returns an error
// of the file, or the first error of entry.
func Salvage(file *os.File, visit func(bucket string, key, value []byte) error) ([]LostPage, error) {
	last, err := readNewestMeta(file)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	pages := uint64(info.Size()) / uint64(max(last.pageSize(), 1))
	if !last.isValid() || last.pages() > maxPages {
		return nil, errors.New("both meta pages of the file are damaged")
	}
	s := salvager{pageWalker: pageWalker{file: file, pageSize: last.pageSize(), seen: make([]bool, min(pages, last.pages()))}, entry: visit}
	err = s.salvagePage("", last.root())
	return s.losses, err
}

type salvager struct {
	pageWalker
	entry  func(bucket string, key, value []byte) error
	losses []LostPage
}

func (s *salvager) recordLoss(bucket string, page uint64, err error) {
	s.losses = append(s.losses, LostPage{bucket, page, err})
}

// salvagePage salvages the elements of a page and of all pages below this page.
func (s *salvager) salvagePage(bucket string, id uint64) error {
	if id < 2 || id >= uint64(len(s.seen)) || s.seen[id] {
		s.recordLoss(bucket, id, errors.New("it is referenced twice, or lies beyond the file"))
		return nil
	}
	s.seen[id] = true
	read, err := s.read(id)
	if err != nil {
		s.recordLoss(bucket, id, err)
		return nil
	}
	p := page(bytes.Clone(read)) // a copy, because s.read reuses its memory for the pages below
	if p.kind() == kindLeaf {
		return s.salvageLeaf(bucket, id, p)
	}
	var below []uint64
	if err := p.eachChild(func(_ []byte, id uint64) { below = append(below, id) }); err != nil {
		s.recordLoss(bucket, id, err)
	}
	for _, id := range below {
		if err := s.salvagePage(bucket, id); err != nil {
			return err
		}
	}
	return nil
}

// salvageLeaf salvages the elements of a leaf. If bucket is empty, the leaf is part of the root
// and its elements are buckets.
func (s *salvager) salvageLeaf(bucket string, id uint64, p page) error {
	bad := 0
	for i := range p.count() {
		key, value, isBucket, ok := p.element(i)
		switch {
		case !ok, bucket == "" && !isBucket, isBucket && (bucket != "" || len(value) < bucketHeader):
			bad++
		case !isBucket:
			if err := s.entry(bucket, key, value); err != nil {
				return err
			}
		default:
			if err := s.salvageBucket(string(key), id, value); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		s.recordLoss(bucket, id, fmt.Errorf("%d of its %d elements are damaged", bad, p.count()))
	}
	return nil
}

// salvageBucket salvages a bucket with pages of its own, or inline in page id.
func (s *salvager) salvageBucket(name string, id uint64, value []byte) error {
	if root := order.Uint64(value); root != 0 {
		return s.salvagePage(name, root)
	}
	inline := page(value[bucketHeader:])
	if len(inline) < pageHeader || inline.kind() != kindLeaf {
		s.recordLoss(name, id, errors.New("the bucket has no page"))
		return nil
	}
	return s.salvageLeaf(name, id, inline)
}
