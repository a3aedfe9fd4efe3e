package redo

import (
	"cmp"
	"errors"
	"fmt"
	"os"
)

// Recovered is what Recover has done.
type Recovered struct {
	Transactions int  // that were written again
	Dropped      bool // the log is older than the file, which has been written without one since
}

// Recover puts what the log has into the bbolt file at path, which is open as file and
// locked, and removes the log. Where there is none it does nothing. A file of zero bytes
// has none.
func Recover(file *os.File, path string) (Recovered, error) {
	return putBack(file, path, syncs{flush, syncFolder})
}

func putBack(file *os.File, path string, sync syncs) (done Recovered, err error) {
	log, err := readLog(path)
	if err != nil {
		return done, err
	}
	if len(log) == 0 {
		return done, remove(path, sync) // of files that were made, and in which nothing was begun
	}
	last := log[len(log)-1]
	verdict, err := compare(file, log)
	if err != nil {
		return done, err
	}
	kept := header{generation: last.generation + 1}
	switch verdict {
	case stranger:
		return done, fmt.Errorf("%s.redo0 and .redo1 are the log of another state of %s: if that has been put back from a backup, move the two away", path, path)
	case newer:
		done.Dropped = true
		if kept.last, kept.prior, err = readMetas(file); err != nil {
			return done, err
		}
	case same:
		if err := replay(file, log, sync); err != nil {
			return done, fmt.Errorf("write what the log of %s has: %w", path, err)
		}
		for _, c := range log {
			done.Transactions += len(c.records)
		}
		kept.last, kept.prior = last.state()
	}
	// The segments go one after the other: what stays alone for a moment needs no other.
	if err := retire(last.path, kept, sync); err != nil {
		return done, err
	}
	return done, remove(path, sync)
}

// retire makes a segment one without records.
func retire(path string, h header, sync syncs) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(h.bytes(), 0)
	if err == nil {
		err = sync.file(file)
	}
	return errors.Join(err, file.Close())
}

// readLog reads the segments that are needed, the older first.
func readLog(path string) ([]*chain, error) {
	var found []*chain
	for _, segment := range paths(path) {
		c, err := readChain(segment)
		if err != nil {
			return nil, err
		}
		if c != nil {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	if len(found) == 2 && found[0].generation > found[1].generation {
		found[0], found[1] = found[1], found[0]
	}
	newest := found[len(found)-1]
	if !newest.needs {
		return []*chain{newest}, newest.damage
	}
	if len(found) == 2 {
		if err := cmp.Or(found[0].damage, newest.damage); err != nil {
			return nil, err
		}
		if last, _ := found[0].state(); last == newest.last && found[0].generation+1 == newest.generation {
			return found, nil
		}
	}
	return nil, fmt.Errorf("%s needs what the other segment of the log held, which is lost: restore the folder from a backup", newest.path)
}

// What a file is to a log.
type relation int

const (
	same     relation = iota // the log is the file's
	newer                    // the file has been written without the log since
	stranger                 // neither
)

// compare says what a file is to a log: each meta page that is whole is one that the log
// knows, or that of the one transaction that may follow without being in the log.
func compare(file *os.File, log []*chain) (relation, error) {
	known := map[meta]bool{}
	for _, c := range log {
		known[c.last], known[c.prior] = true, true
		for _, r := range c.records {
			known[r.meta] = true
		}
	}
	last, _ := log[len(log)-1].state()
	newest := meta{}
	strange := false
	for slot := range uint64(2) {
		m, err := readMeta(file, last.pageSize(), slot)
		if err != nil {
			return stranger, err
		}
		if !m.valid() {
			continue
		}
		if !newest.valid() || m.tx() > newest.tx() {
			newest = m
		}
		// Versions without a log write the list of free pages.
		unfinished := m.tx() == last.tx()+1 && m.freelist() == noFreelist
		strange = strange || !known[m] && !unfinished
	}
	switch {
	case !strange:
		return same, nil
	case newest.tx() > last.tx():
		return newer, nil
	}
	return stranger, nil
}

// replay writes what the log has, and makes it durable.
func replay(file *os.File, log []*chain, sync syncs) error {
	last, prior := log[len(log)-1].state()
	pageSize := int64(last.pageSize())
	for _, c := range log {
		for _, r := range c.records {
			err := r.pages(func(id uint64, page []byte) error {
				_, err := file.WriteAt(page, int64(id)*pageSize)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	for _, m := range []meta{prior, last} {
		if !m.valid() {
			continue
		}
		if _, err := file.WriteAt(m.onPage(), int64(m.tx()%2)*pageSize); err != nil {
			return err
		}
	}
	if info, err := file.Stat(); err != nil {
		return err
	} else if least := int64(last.pages()) * pageSize; info.Size() < least {
		if err := file.Truncate(least); err != nil {
			return err
		}
	}
	return sync.file(file)
}
