package redo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Config is what a Log needs.
type Config struct {
	// Path is the bbolt file. Nothing but the holder of its lock may use the log.
	Path string

	// SegmentBytes bounds each of the two files of the log. What they hold is written
	// again at a start after a crash.
	SegmentBytes int64

	// Sync flushes the bbolt file.
	Sync func() error

	// Doubt is told why a transaction could not be copied, which is a fault of this
	// package; the file itself was flushed instead.
	Doubt func(error)
}

// A Log makes transactions of a bbolt file durable that bbolt does not flush. Its
// methods must not be called at the same time.
type Log struct {
	Config
	copier
	bolt       *reader
	last       meta // of the newest transaction that is durable
	prior      meta // of the one before
	generation uint64
	segments   [segments]segment
	current    int
	flushing   chan error // of the bbolt file; nil where it is not being flushed
	buffer     []byte
	sync       syncs
}

// A segment is one file of the log.
type segment struct {
	file   *os.File // nil before it is begun
	zeroed int64    // its length
	at     int64    // where the next record goes
}

// Start begins a log of a bbolt file that is flushed and has none.
func Start(config Config) (*Log, error) {
	bolt, err := openReader(config.Path)
	if err != nil {
		return nil, err
	}
	last, prior, err := readMetas(bolt)
	if err == nil && !last.valid() {
		err = errors.New("it has no meta page that is whole")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin a log for %s: %w", config.Path, err), bolt.Close())
	}
	return &Log{
		Config: config, copier: copier{file: bolt, pageSize: last.pageSize(), most: int(config.SegmentBytes)},
		bolt: bolt, last: last, prior: prior, sync: syncs{flush, syncFolder},
	}, nil
}

// Ready says before a transaction whether the log will take it: a start must be able to
// tell that it is unfinished. Where there is no room to begin a log bbolt must flush.
func (l *Log) Ready() bool { return l.generation > 0 || l.turn(0) == nil }

// Commit makes the transaction durable that bbolt has just committed, and which has
// allocated so many pages. Where the log has no room for it the file itself is flushed.
// After an error nobody knows what is durable.
func (l *Log) Commit(pages int64) error {
	next, err := readMeta(l.bolt, l.pageSize, (l.last.tx()+1)%2)
	if err != nil {
		return fmt.Errorf("read the newest meta page: %w", err)
	}
	if !next.valid() || next.tx() != l.last.tx()+1 {
		return fmt.Errorf("transaction %d does not follow %d", next.tx(), l.last.tx())
	}
	if l.generation == 0 { // bbolt has flushed it
		l.last, l.prior = next, l.last
		return nil
	}
	err = l.take(next, pages)
	if err == nil {
		if err = l.append(next); !errors.Is(err, errNoRoom) {
			return err
		}
	}
	if !errors.Is(err, errNoRoom) {
		l.Doubt(err)
	}
	return l.flushFile(next)
}

// take copies what a transaction has written into the buffer. A copy of fewer pages than
// were written would make a file of old and new ones.
func (l *Log) take(next meta, pages int64) error {
	err := l.between(l.last, next, append(l.buffer[:0], make([]byte, recordBytes)...))
	l.buffer = l.body
	if err != nil {
		return fmt.Errorf("find what transaction %d has written: %w", next.tx(), err)
	}
	if l.pages != pages {
		return fmt.Errorf("transaction %d has written %d pages, and %d of them are in its trees", next.tx(), pages, l.pages)
	}
	return nil
}

// errNoRoom says that a record has no place in the log.
var errNoRoom = errors.New("the log has no room")

// append writes a record and flushes it.
func (l *Log) append(next meta) error {
	room := int64(len(l.buffer)+align) / align * align
	if align+room > l.SegmentBytes {
		return errNoRoom
	}
	s := &l.segments[l.current]
	if s.at+room > l.SegmentBytes {
		if err := l.turn(room); err != nil {
			return err
		}
		s = &l.segments[l.current]
	}
	if err := s.grow(s.at + room); err != nil {
		return err
	}
	l.buffer = seal(l.buffer, l.generation, next)
	if _, err := s.file.WriteAt(l.buffer, s.at); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if err := l.sync.file(s.file); err != nil {
		return fmt.Errorf("flush the log: %w", err)
	}
	s.at += int64(len(l.buffer))
	l.last, l.prior = next, l.last
	return nil
}

// turn begins the other segment, with room for a record, once what that had holds is in
// the file for good, and has the file flushed for what the full one holds.
func (l *Log) turn(room int64) error {
	if err := l.flushed(); err != nil {
		return err
	}
	first := l.generation == 0
	other := l.current
	if !first {
		other = (l.current + 1) % segments
	}
	s := &l.segments[other]
	if s.file == nil {
		if err := s.create(paths(l.Path)[other], l.sync); err != nil {
			return err
		}
	}
	if err := s.grow(align + room); err != nil {
		return err
	}
	if err := l.begin(s, header{generation: l.generation + 1, needs: !first, last: l.last, prior: l.prior}); err != nil {
		return err
	}
	l.current = other
	if !first {
		l.flushing = make(chan error, 1)
		go func() { l.flushing <- l.Sync() }()
	}
	return nil
}

// begin makes the header of a segment durable. Its sector is written as a whole or not
// at all, and records follow only once it is.
func (l *Log) begin(s *segment, h header) error {
	if _, err := s.file.WriteAt(h.bytes(), 0); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if err := l.sync.file(s.file); err != nil {
		return fmt.Errorf("flush the log: %w", err)
	}
	l.generation, s.at = h.generation, align
	return nil
}

// flushed waits until the file is not being flushed.
func (l *Log) flushed() error {
	if l.flushing == nil {
		return nil
	}
	err := <-l.flushing
	l.flushing = nil
	if err != nil {
		return fmt.Errorf("flush the file behind the log: %w", err)
	}
	return nil
}

// flushFile makes a transaction durable that the log has no room for, by two flushes:
// of the file, and of a header by which nothing in the log is needed any more.
func (l *Log) flushFile(next meta) error {
	l.last, l.prior = next, l.last
	return l.empty()
}

// empty flushes the file, after which nothing in the log is needed.
func (l *Log) empty() error {
	if err := l.flushed(); err != nil {
		return err
	}
	if err := l.Sync(); err != nil {
		return fmt.Errorf("flush the file behind the log: %w", err)
	}
	if l.generation == 0 {
		return nil
	}
	return l.begin(&l.segments[l.current], header{generation: l.generation + 1, last: l.last, prior: l.prior})
}

// create makes the file of a segment.
func (s *segment) create(path string, sync syncs) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(errNoRoom, err)
	}
	if err := sync.folder(filepath.Dir(path)); err != nil {
		return errors.Join(err, file.Close())
	}
	s.file = file
	return nil
}

// grow fills the segment with zeros up to a length and some more. A disk that is full is
// no failure of the log.
func (s *segment) grow(to int64) error {
	for s.zeroed < to {
		n, err := s.file.WriteAt(make([]byte, zeroed), s.zeroed)
		if err != nil {
			return errors.Join(errNoRoom, err)
		}
		s.zeroed += int64(n)
	}
	return nil
}

// Close flushes the file and removes the log, unless broken says that the file is in
// doubt: then the next start needs it. The bbolt file must still be open.
func (l *Log) Close(broken bool) error {
	var err error
	if broken {
		_ = l.flushed() // what is broken was told
	} else {
		err = l.empty()
	}
	for _, s := range l.segments {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	err = errors.Join(err, l.bolt.Close())
	if err == nil && !broken {
		err = remove(l.Path, l.sync)
	}
	return err
}
