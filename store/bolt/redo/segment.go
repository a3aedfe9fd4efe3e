package redo

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	segments = 2

	// align is where records begin: sectors are up to that large, and none with a
	// record in it that is durable is written again.
	align = 4096

	// zeroed is by how much a segment grows: little for a store that is hardly written
	// to, and a flush of zeros for some 25 commits.
	zeroed = 1 << 20

	magicSegment = 0x31304F4445524D52 // RMREDO01
	magicRecord  = 0x31434552         // REC1

	headerBytes = 8 + 8 + 8 + 8 + 2*metaBytes // magic, generation, needs, hash, metas
	recordBytes = 8 + 8 + 8 + 8 + metaBytes   // magic, generation, length of the rest, hash, meta
)

// paths are the files of the log of the bbolt file at path.
func paths(path string) [segments]string { return [segments]string{path + ".redo0", path + ".redo1"} }

// A header begins a segment.
type header struct {
	generation uint64
	needs      bool // the records of the segment before
	last       meta // of the file when the segment was begun
	prior      meta // the one before
}

func (h header) bytes() []byte {
	b := make([]byte, headerBytes, align)
	order.PutUint64(b, magicSegment)
	order.PutUint64(b[8:], h.generation)
	if h.needs {
		b[16] = 1
	}
	copy(b[32:], h.last[:])
	copy(b[32+metaBytes:], h.prior[:])
	order.PutUint64(b[24:], xxhash.Sum64(b))
	return b[:align]
}

func readHeader(b []byte) (h header, ok bool) {
	if len(b) < headerBytes || order.Uint64(b) != magicSegment {
		return h, false
	}
	h = header{generation: order.Uint64(b[8:]), needs: b[16] == 1}
	copy(h.last[:], b[32:])
	copy(h.prior[:], b[32+metaBytes:])
	return h, bytes.Equal(h.bytes()[:headerBytes], b[:headerBytes])
}

// A record is one transaction: the meta page that names its state, and copies of the
// pages it has written.
type record struct {
	meta meta
	body []byte
}

// seal completes a record that stands in b behind recordBytes of room, and pads it.
func seal(b []byte, generation uint64, m meta) []byte {
	order.PutUint64(b, magicRecord)
	order.PutUint64(b[8:], generation)
	order.PutUint64(b[16:], uint64(len(b)-recordBytes))
	order.PutUint64(b[24:], 0)
	copy(b[32:], m[:])
	order.PutUint64(b[24:], xxhash.Sum64(b))
	padded := (len(b) + align - 1) / align * align
	return append(b, make([]byte, padded-len(b))...)
}

// readRecord reads the record at the beginning of b, and how far it goes.
func readRecord(b []byte, generation uint64) (r record, end int, ok bool) {
	if len(b) < recordBytes || order.Uint64(b) != magicRecord || order.Uint64(b[8:]) != generation {
		return r, 0, false
	}
	length := order.Uint64(b[16:])
	if length > uint64(len(b)-recordBytes) {
		return r, 0, false
	}
	whole := b[:recordBytes+int(length)]
	hash := xxhash.New()
	_, _ = hash.Write(whole[:24])
	_, _ = hash.Write(make([]byte, 8))
	_, _ = hash.Write(whole[32:])
	if hash.Sum64() != order.Uint64(whole[24:]) {
		return r, 0, false
	}
	copy(r.meta[:], whole[32:])
	r.body = whole[recordBytes:]
	return r, min((len(whole)+align-1)/align*align, len(b)), true
}

// pages calls write for each page of a record.
func (r record) pages(write func(id uint64, page []byte) error) error {
	for rest := r.body; len(rest) > 0; {
		if len(rest) < entryHeader {
			return errors.New("a record is cut off")
		}
		id, n, used := order.Uint64(rest), int(order.Uint32(rest[8:])), int(order.Uint32(rest[12:]))
		if used > n || n > maxPage || used > len(rest)-entryHeader {
			return fmt.Errorf("a record has %d bytes of a page of %d where %d are left", used, n, len(rest)-entryHeader)
		}
		page := make([]byte, n)
		copy(page, rest[entryHeader:entryHeader+used])
		if err := write(id, page); err != nil {
			return err
		}
		rest = rest[entryHeader+used:]
	}
	return nil
}

// A chain is what a segment holds.
type chain struct {
	header
	path    string
	records []record
	damage  error // why there are no more of them, where that is not for the last was torn
}

// state is that of the file after the records.
func (c *chain) state() (last, prior meta) {
	switch n := len(c.records); n {
	case 0:
		return c.last, c.prior
	case 1:
		return c.records[0].meta, c.last
	default:
		return c.records[n-1].meta, c.records[n-2].meta
	}
}

// readChain reads a segment, or nil where none was begun in it.
func readChain(path string) (*chain, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, ok := readHeader(b)
	if !ok {
		return nil, nil
	}
	c := &chain{header: h, path: path}
	at := align
	for at < len(b) {
		r, end, ok := readRecord(b[at:], h.generation)
		if last, _ := c.state(); !ok || r.meta.tx() != last.tx()+1 {
			break
		}
		c.records = append(c.records, r)
		at += end
	}
	// The last record may be torn: then it was acknowledged to nobody. There is none
	// behind it.
	for torn := at; at < len(b); at += align {
		if r, _, ok := readRecord(b[at:], h.generation); ok {
			c.damage = fmt.Errorf("%s is damaged at byte %d, where the record of a transaction before %d stands: "+
				"restore the folder from a backup, or move both files of the log away to lose what has been written since the bbolt file was last flushed, if that can be read at all", path, torn, r.meta.tx())
			break
		}
	}
	return c, nil
}

// remove removes the log, the newer segment last.
func remove(path string, sync syncs) error {
	var found []*chain
	for _, segment := range paths(path) {
		c, err := readHeaderOf(segment)
		if err != nil {
			return err
		}
		if c != nil {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *chain) int { return cmp.Compare(a.generation, b.generation) })
	for _, c := range found {
		if err := os.Remove(c.path); err != nil {
			return err
		}
		if err := sync.folder(filepath.Dir(path)); err != nil {
			return err
		}
	}
	return nil
}

// readHeaderOf reads no records of a segment. One without a header has generation 0; nil
// is for no file.
func readHeaderOf(path string) (*chain, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read only
	b := make([]byte, headerBytes)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	h, _ := readHeader(b[:n])
	return &chain{header: h, path: path}, nil
}

// syncs is how files and folders are made durable.
type syncs struct {
	file   func(*os.File) error
	folder func(path string) error
}

// syncFolder makes the names in a folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
