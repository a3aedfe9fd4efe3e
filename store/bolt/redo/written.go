package redo

import (
	"fmt"
	"io"
	"slices"
)

// A copier finds the pages that the newest transaction has written: those that the
// state it made has and the state before has not. bbolt changes no page in place, so the
// path to each begins at the root.
type copier struct {
	file     io.ReaderAt
	pageSize int
	most     int    // bytes of the body
	body     []byte // copies of pages, as a record has them
	pages    int64  // that were copied, those in a row each
	scratch  []byte
}

// entryHeader stands before the copy of a page: number 8, bytes 4, bytes without the
// zeros at the end 4.
const entryHeader = 16

// between copies the pages that stand in after and not in before, into a body that
// begins as body does.
func (c *copier) between(before, after meta, body []byte) error {
	c.body, c.pages = body, 0
	old, young := map[string]uint64{}, map[string]uint64{}
	note := func(in map[string]uint64) func(page) error {
		return func(p page) error {
			return p.buckets(func(name []byte, root uint64, _ page) error {
				in[string(name)] = root
				return nil
			})
		}
	}
	if err := c.tree(before.root(), after.root(), note(old), note(young)); err != nil {
		return err
	}
	for name, root := range young {
		if root == 0 || root == old[name] {
			continue
		}
		if err := c.tree(old[name], root, nil, nil); err != nil {
			return fmt.Errorf("bucket %q: %w", name, err)
		}
	}
	return nil
}

// tree copies the pages of the tree at after that the one at before has not; 0 is none.
// Leaves only one of them has are shown to gone and fresh. The levels of both are
// gone over side by side from the root down, since a page that stays has the same height
// above the leaves in both.
func (c *copier) tree(before, after uint64, gone, fresh func(page) error) error {
	heightBefore, err := c.height(before)
	if err != nil {
		return err
	}
	heightAfter, err := c.height(after)
	if err != nil {
		return err
	}
	var old, young []uint64
	for height := max(heightBefore, heightAfter); height >= 0; height-- {
		if height == heightBefore {
			old = []uint64{before}
		}
		if height == heightAfter {
			young = []uint64{after}
		}
		onlyOld, onlyYoung := without(old, young), without(young, old)
		old, young = nil, nil
		for _, id := range onlyYoung {
			p, err := c.copy(id)
			if err != nil {
				return err
			}
			if young, err = below(p, height, young, fresh); err != nil {
				return fmt.Errorf("page %d: %w", id, err)
			}
			c.trim(len(p))
		}
		for _, id := range onlyOld {
			if height == 0 && gone == nil {
				break
			}
			p, err := c.read(id)
			if err != nil {
				return err
			}
			if old, err = below(p, height, old, gone); err != nil {
				return fmt.Errorf("page %d: %w", id, err)
			}
		}
	}
	return nil
}

// below appends the pages below one, or shows it where it is a leaf.
func below(p page, height int, to []uint64, leaf func(page) error) ([]uint64, error) {
	if (height == 0) != (p.kind() == kindLeaf) {
		return to, fmt.Errorf("it is of kind %d at height %d", p.kind(), height)
	}
	if height > 0 {
		err := p.branch(func(_ []byte, id uint64) { to = append(to, id) })
		return to, err
	}
	if leaf != nil {
		return to, leaf(p)
	}
	return to, nil
}

// without is what a has and b has not. Both are in the order of their keys, so that
// what they share mostly stands at both ends.
func without(a, b []uint64) []uint64 {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(a) == 0 || len(b) == 0 {
		return a
	}
	b = slices.Sorted(slices.Values(b))
	return slices.DeleteFunc(slices.Clone(a), func(id uint64) bool {
		_, found := slices.BinarySearch(b, id)
		return found
	})
}

// maxHeight bounds the way down a tree: in a file that is damaged it may go in circles.
const maxHeight = 64

// height is how many levels lie between a page and its leaves; -1 for no page.
func (c *copier) height(id uint64) (height int, err error) {
	if id == 0 {
		return -1, nil
	}
	var top [pageHeader + branchElement]byte
	for height := range maxHeight {
		if _, err := c.file.ReadAt(top[:], int64(id)*int64(c.pageSize)); err != nil {
			return 0, fmt.Errorf("read page %d: %w", id, err)
		}
		if _, err := length(top[:], id, c.pageSize); err != nil {
			return 0, err
		}
		p := page(top[:])
		if p.kind() == kindLeaf {
			return height, nil
		}
		if p.count() == 0 {
			return 0, fmt.Errorf("page %d is a branch without pages", id)
		}
		id = order.Uint64(p[pageHeader+8:])
	}
	return 0, fmt.Errorf("a tree is higher than %d pages", maxHeight)
}

// read reads a page. It is good until the next is read.
func (c *copier) read(id uint64) (page, error) {
	c.scratch = c.scratch[:0]
	var err error
	c.scratch, err = c.appendPage(c.scratch, id)
	return c.scratch, err
}

// copy appends a page to the body, or returns errNoRoom. trim must follow.
func (c *copier) copy(id uint64) (page, error) {
	if len(c.body) > c.most {
		return nil, errNoRoom
	}
	c.body = order.AppendUint64(c.body, id)
	c.body = append(c.body, make([]byte, 8)...)
	start := len(c.body)
	var err error
	if c.body, err = c.appendPage(c.body, id); err != nil {
		return nil, err
	}
	return c.body[start:], nil
}

// trim cuts the zeros off the page at the end of the body, which has n bytes.
func (c *copier) trim(n int) {
	start := len(c.body) - n
	used := n
	for used >= 8 && order.Uint64(c.body[start+used-8:]) == 0 {
		used -= 8
	}
	for used > 0 && c.body[start+used-1] == 0 {
		used--
	}
	order.PutUint32(c.body[start-8:], uint32(n))
	order.PutUint32(c.body[start-4:], uint32(used))
	c.body = c.body[:start+used]
	c.pages += int64(n / c.pageSize)
}

// appendPage appends what a page holds.
func (c *copier) appendPage(to []byte, id uint64) ([]byte, error) {
	start, offset := len(to), int64(id)*int64(c.pageSize)
	to = slices.Grow(to, c.pageSize)[:start+c.pageSize]
	if _, err := c.file.ReadAt(to[start:], offset); err != nil {
		return to, fmt.Errorf("read page %d: %w", id, err)
	}
	n, err := length(to[start:], id, c.pageSize)
	if err != nil || n == c.pageSize {
		return to, err
	}
	to = slices.Grow(to, n-c.pageSize)[:start+n]
	if _, err := c.file.ReadAt(to[start+c.pageSize:], offset+int64(c.pageSize)); err != nil {
		return to, fmt.Errorf("read page %d: %w", id, err)
	}
	return to, nil
}
