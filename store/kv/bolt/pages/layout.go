package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The page layout of bbolt, version 2 of its file format. The comments list the members
// of each header or element with their sizes in bytes.
const (
	pageHeader    = 16 // page id 8, kind 2, count 2, number of overflow pages 4
	branchElement = 16 // position 4, length of the key 4, page 8
	leafElement   = 16 // flags 4, position 4, length of the key 4, of the value 4
	bucketHeader  = 16 // root page 8, sequence 8

	kindBranch = 0x01
	kindLeaf   = 0x02

	flagBucket = 0x01 // flag of a leaf element that contains a bucket

	magicBolt   = 0xED0CDAED
	versionBolt = 2

	// maxPage limits a page with its overflow pages, so that a damaged header cannot
	// cause a huge read.
	maxPage = 1 << 30
)

var order = binary.NativeEndian

// A metaPage is the content of a meta page, which describes one state of the file. Transaction
// n writes meta page n modulo 2.
type metaPage [metaBytes]byte

const metaBytes = 64

func (m *metaPage) pageSize() int { return int(order.Uint32(m[8:])) }
func (m *metaPage) root() uint64  { return order.Uint64(m[16:]) }
func (m *metaPage) pages() uint64 { return order.Uint64(m[40:]) }
func (m *metaPage) tx() uint64    { return order.Uint64(m[48:]) }

func (m *metaPage) isValid() bool {
	hash := fnv.New64a()
	_, _ = hash.Write(m[:56])
	return order.Uint32(m[0:]) == magicBolt && order.Uint32(m[4:]) == versionBolt && order.Uint64(m[56:]) == hash.Sum64()
}

// readMeta reads the meta page with this page number. For an incomplete page it returns
// an invalid meta.
func readMeta(file io.ReaderAt, pageSize int, page uint64) (m metaPage, err error) {
	_, err = file.ReadAt(m[:], int64(page)*int64(pageSize)+pageHeader)
	if errors.Is(err, io.EOF) {
		return metaPage{}, nil
	}
	return m, err
}

// readNewestMeta reads both meta pages and returns the newer valid one, or an invalid
// meta when neither is valid.
func readNewestMeta(file io.ReaderAt) (metaPage, error) {
	first, err := readMeta(file, 0, 0)
	if err != nil {
		return metaPage{}, err
	}
	sizes := []int{first.pageSize()}
	if !first.isValid() { // the page size is unknown, so try all sizes
		sizes = sizes[:0]
		for size := 1 << 10; size <= 1<<16; size <<= 1 {
			sizes = append(sizes, size)
		}
	}
	for _, size := range sizes {
		second, err := readMeta(file, size, 1)
		if err != nil {
			return metaPage{}, err
		}
		if second.isValid() && second.pageSize() == size && (!first.isValid() || second.tx() > first.tx()) {
			return second, nil
		}
	}
	return first, nil
}

// A page holds the bytes of a page and its overflow pages, including the header.
type page []byte

func (p page) kind() uint16 { return order.Uint16(p[8:]) }
func (p page) count() int   { return int(order.Uint16(p[10:])) }

// pageBytes returns the number of bytes of the page with this header, or an error when the
// header does not belong to page id.
func pageBytes(header []byte, id uint64, pageSize int) (int, error) {
	kind := order.Uint16(header[8:])
	if found := order.Uint64(header); found != id || kind != kindBranch && kind != kindLeaf {
		return 0, fmt.Errorf("page %d is invalid: its header has page number %d and kind %d", id, found, kind)
	}
	further := int64(order.Uint32(header[12:]))
	if length := (further + 1) * int64(pageSize); length <= maxPage {
		return int(length), nil
	}
	return 0, fmt.Errorf("page %d is invalid: its header claims %d overflow pages", id, further)
}

// eachChild calls visit with each child page of a branch and its first key.
func (p page) eachChild(visit func(key []byte, id uint64)) error {
	for i := range p.count() {
		start := pageHeader + i*branchElement
		if start+branchElement > len(p) {
			return errCut
		}
		e := p[start:]
		key := int64(start) + int64(order.Uint32(e))
		end := key + int64(order.Uint32(e[4:]))
		if end > int64(len(p)) {
			return errCut
		}
		visit(p[key:end], order.Uint64(e[8:]))
	}
	return nil
}

// eachElement calls visit with each element of a leaf.
func (p page) eachElement(visit func(isBucket bool, key, value []byte) error) error {
	for i := range p.count() {
		key, value, isBucket, ok := p.element(i)
		if !ok {
			return errCut
		}
		if err := visit(isBucket, key, value); err != nil {
			return err
		}
	}
	return nil
}

// element returns an element of a leaf. ok is false if it lies beyond the page.
func (p page) element(i int) (key, value []byte, isBucket, ok bool) {
	start := pageHeader + i*leafElement
	if start+leafElement > len(p) {
		return nil, nil, false, false
	}
	e := p[start:]
	from := int64(start) + int64(order.Uint32(e[4:]))
	to := from + int64(order.Uint32(e[8:]))
	end := to + int64(order.Uint32(e[12:]))
	if end > int64(len(p)) {
		return nil, nil, false, false
	}
	return p[from:to], p[to:end], order.Uint32(e)&flagBucket != 0, true
}

// eachBucket calls found with each bucket of a leaf. root is the root page of the bucket, or
// 0 if the bucket has no pages of its own: then inline is its page.
func (p page) eachBucket(found func(name []byte, root uint64, inline page) error) error {
	return p.eachElement(func(isBucket bool, key, value []byte) error {
		switch {
		case !isBucket:
			return nil
		case len(value) < bucketHeader:
			return errCut
		}
		return found(key, order.Uint64(value), value[bucketHeader:])
	})
}

var errCut = errors.New("an element lies beyond its page")
