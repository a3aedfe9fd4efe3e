package redo

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/bbolt"
)

// A disk keeps, of each file, what is durable and what the file was like at each moment
// since: after a power cut every sector is as it was at any of them.
type disk struct {
	mu    sync.Mutex
	files map[string]*past
}

type past struct {
	durable []byte
	since   [][]byte
}

// look notes what a file is like.
func (d *disk) look(t testing.TB, path string) {
	t.Helper()
	now, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		now, err = nil, nil
	}
	if err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.files[path]
	if p == nil {
		p = new(past)
		d.files[path] = p
	}
	if n := len(p.since); n == 0 || !bytes.Equal(p.since[n-1], now) {
		p.since = append(p.since, now)
	}
}

// flushed notes that what a file was like at a moment is durable.
func (d *disk) flushed(path string, moment int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.files[path]
	p.durable = p.since[moment]
	p.since = slices.Clone(p.since[moment:])
}

// moment is the last at which a file was looked at. Those before a later one that is
// durable are forgotten, so that it counts for one flush at a time.
func (d *disk) moment(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.files[path].since) - 1
}

// An outage is what may have become of the files.
type outage struct {
	files  map[string]past
	sure   int // transactions that were acknowledged
	begun  int // and that were begun
	states []map[string]string
	what   string
}

func (d *disk) outage() map[string]past {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := map[string]past{}
	for path, p := range d.files {
		files[path] = past{p.durable, slices.Clone(p.since)}
	}
	return files
}

// survivors decides which of the segments that were removed are gone for good: the older
// one is before the other is removed.
func survivors(files map[string]past, random *rand.Rand) map[string]past {
	var removed []string
	for name, p := range files {
		if n := len(p.since); n > 0 && p.since[n-1] == nil && p.durable != nil {
			removed = append(removed, name)
		}
	}
	slices.SortFunc(removed, func(a, b string) int {
		first, _ := readHeader(files[a].durable)
		second, _ := readHeader(files[b].durable)
		return cmp.Compare(first.generation, second.generation)
	})
	gone := random.IntN(len(removed) + 1)
	files = maps.Clone(files)
	for i, name := range removed {
		if i < gone {
			delete(files, name)
		} else {
			files[name] = past{files[name].durable, nil}
		}
	}
	return files
}

// ways a power cut can choose among the moments of a sector.
var ways = []string{"nothing", "everything", "sectors", "pages", "last moment by sector", "prefix", "meta pages only", "all but meta pages"}

// image is one file as it may be found.
func (p past) image(way string, random *rand.Rand) []byte {
	all := append([][]byte{p.durable}, p.since...)
	newest := all[len(all)-1]
	length := len(newest)
	if way == "nothing" {
		return slices.Clone(p.durable)
	}
	if way == "everything" {
		return slices.Clone(newest)
	}
	if random.IntN(4) == 0 {
		length = max(len(p.durable), len(all[random.IntN(len(all))]))
	}
	found := make([]byte, length)
	step := 512
	if way == "pages" {
		step = 4096
	}
	cut := random.IntN(length/step + 1)
	for at := 0; at < length; at += step {
		from := all[random.IntN(len(all))]
		switch way {
		case "last moment by sector":
			from = all[max(0, len(all)-1-random.IntN(2))]
		case "prefix":
			from = newest
			if at/step >= cut {
				from = p.durable
			}
		case "meta pages only", "all but meta pages":
			from = p.durable
			if (at < 8192) == (way == "meta pages only") {
				from = newest
			}
		}
		if at < len(from) {
			copy(found[at:min(at+step, length)], from[at:])
		}
	}
	return found
}

func segmentsOf(path string) []string {
	both := paths(path)
	return both[:]
}

const counter = "transactions"

var names = []string{"a", "b", "c"}

// content is all that a database has.
func content(db *bbolt.DB) (map[string]string, error) {
	all := map[string]string{}
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all[string(name)+"/"+string(k)] = string(v)
				return nil
			})
		})
	})
	return all, err
}

// change does something by chance to a database and to what it is to have.
func change(tx *bbolt.Tx, state map[string]string, n int, random *rand.Rand) error {
	put := func(name, key, value string) error {
		b, err := tx.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		state[name+"/"+key] = value
		return b.Put([]byte(key), []byte(value))
	}
	if err := put(counter, counter, string(binary.BigEndian.AppendUint32(nil, uint32(n)))); err != nil {
		return err
	}
	for range 1 + random.IntN(6) {
		name := names[random.IntN(len(names))]
		if random.IntN(3) > 0 {
			size := random.IntN(300)
			if random.IntN(10) == 0 {
				size = random.IntN(30_000)
			}
			if random.IntN(60) == 0 {
				size = 200_000 // more than a segment has room for
			}
			value := bytes.Repeat([]byte{byte(random.IntN(256))}, size)
			if err := put(name, fmt.Sprint(random.IntN(400)), string(value)); err != nil {
				return err
			}
			continue
		}
		b := tx.Bucket([]byte(name))
		if b == nil {
			continue
		}
		from := fmt.Sprint(random.IntN(400))
		var doomed [][]byte
		c := b.Cursor()
		for k, _ := c.Seek([]byte(from)); k != nil && len(doomed) < random.IntN(60); k, _ = c.Next() {
			doomed = append(doomed, bytes.Clone(k))
		}
		for _, k := range doomed {
			delete(state, name+"/"+string(k))
			if err := b.Delete(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// A bench is a database behind a log, on a disk.
type bench struct {
	t      *testing.T
	disk   *disk
	path   string
	db     *bbolt.DB
	log    *Log
	random *rand.Rand
	states []map[string]string // after each transaction
	sure   int
	mu     sync.Mutex
	cuts   []outage
	doubts []error
}

// cut notes what a power cut would leave now. The file is flushed beside transactions:
// what was acknowledged before the disk is looked at is on it, and nothing that is begun
// after.
func (b *bench) cut(what string) {
	b.mu.Lock()
	sure := b.sure
	b.mu.Unlock()
	files := b.disk.outage()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cuts = append(b.cuts, outage{files, sure, len(b.states) - 1, slices.Clone(b.states), what})
}

const testSegment = 128 << 10

func newBench(t *testing.T, seed uint64) *bench {
	b := &bench{
		t: t, disk: &disk{files: map[string]*past{}}, path: filepath.Join(t.TempDir(), "records.db"),
		random: rand.New(rand.NewPCG(seed, 1)), states: []map[string]string{{}},
	}
	var err error
	b.db, err = bbolt.Open(b.path, 0o600, &bbolt.Options{NoFreelistSync: true, NoSync: true, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.db.AllocSize = 1 << 16
	b.disk.look(t, b.path)
	b.disk.flushed(b.path, 0)
	b.log, err = Start(Config{
		Path: b.path, SegmentBytes: testSegment, Doubt: func(err error) { b.doubts = append(b.doubts, err) },
		Sync: func() error {
			b.disk.look(t, b.path)
			moment := b.disk.moment(b.path)
			b.cut("flush of the file begins")
			if err := b.db.Sync(); err != nil {
				return err
			}
			b.disk.flushed(b.path, moment)
			b.cut("file flushed")
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.log.sync.file = func(f *os.File) error {
		b.disk.look(t, f.Name())
		moment := b.disk.moment(f.Name())
		b.cut("flush of the log begins")
		if err := flush(f); err != nil {
			return err
		}
		b.disk.flushed(f.Name(), moment)
		b.cut("log flushed")
		return nil
	}
	return b
}

// commit runs one transaction.
func (b *bench) commit() {
	b.t.Helper()
	state := maps.Clone(b.states[len(b.states)-1])
	var written *bbolt.Tx
	if !b.log.Ready() {
		b.t.Fatal("the log cannot be begun")
	}
	err := b.db.Update(func(tx *bbolt.Tx) error {
		written = tx
		if err := change(tx, state, len(b.states), b.random); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.states = append(b.states, state)
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.disk.look(b.t, b.path)
	b.cut("bbolt has committed")
	stats := written.Stats()
	if err := b.log.Commit(stats.GetPageCount()); err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.sure = len(b.states) - 1
	b.mu.Unlock()
	b.cut("acknowledged")
}

// close stops as a store does.
func (b *bench) close() {
	b.t.Helper()
	if err := errors.Join(b.log.Close(false), b.db.Close()); err != nil {
		b.t.Fatal(err)
	}
	for _, err := range b.doubts {
		b.t.Error(err)
	}
}

// found writes what a power cut has left into a folder.
func found(t *testing.T, files map[string]past, way string, random *rand.Rand) (path string) {
	t.Helper()
	folder := t.TempDir()
	for name, p := range survivors(files, random) {
		image := p.image(way, random)
		if p.durable == nil && len(image) == 0 {
			continue // the file was never made
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(name)), image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "records.db")
}

// judge recovers a file and compares what it has with what was acknowledged.
func (o *outage) judge(path string, recover func(*os.File, string) error) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(recover(file, path), file.Close()); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	for _, segment := range paths(path) {
		if _, err := os.Stat(segment); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is left", segment)
		}
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bbolt.Tx) error {
		var all []error
		for err := range tx.Check() {
			all = append(all, err)
		}
		return errors.Join(all...)
	})
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	got, err := content(db)
	if err != nil {
		return err
	}
	n := 0
	if stored, ok := got[counter+"/"+counter]; ok {
		n = int(binary.BigEndian.Uint32([]byte(stored)))
	}
	if n < o.sure || n > o.begun {
		return fmt.Errorf("it has %d transactions; %d were acknowledged and %d begun", n, o.sure, o.begun)
	}
	if !maps.Equal(got, o.states[n]) {
		return fmt.Errorf("it is not what transaction %d has left", n)
	}
	return nil
}

var noSyncs = syncs{func(*os.File) error { return nil }, func(string) error { return nil }}

// unflushed recovers a file without flushes, which change nothing that a test sees.
func unflushed(file *os.File, path string) error {
	_, err := putBack(file, path, noSyncs)
	return err
}

// TestPowerCutInRecovery cuts it once more while a file is recovered.
func TestPowerCutInRecovery(t *testing.T) {
	t.Parallel()
	b := newBench(t, 7)
	for range 40 {
		b.commit()
	}
	b.close()
	random := rand.New(rand.NewPCG(7, 2))
	recoveries := 60
	if testing.Short() {
		recoveries = 15 // each is one goroutine's
	}
	for range recoveries {
		o := &b.cuts[random.IntN(len(b.cuts))]
		path := found(t, o.files, ways[random.IntN(len(ways))], random)
		again := &disk{files: map[string]*past{}}
		all := append([]string{path}, segmentsOf(path)...)
		for _, name := range all {
			again.look(t, name)
			again.flushed(name, 0)
		}
		var cuts []map[string]past
		cut := func() {
			for _, name := range all {
				again.look(t, name)
			}
			cuts = append(cuts, again.outage())
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = putBack(file, path, syncs{
			file: func(f *os.File) error {
				cut()
				again.flushed(f.Name(), again.moment(f.Name()))
				cut()
				return nil
			},
			folder: func(string) error { cut(); return nil },
		})
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		cut()
		for i, files := range cuts {
			for range 2 {
				way := ways[random.IntN(len(ways))]
				if err := o.judge(found(t, files, way, random), unflushed); err != nil {
					t.Fatalf("%s, cut again at %d of %d, on disk: %s: %v", o.what, i, len(cuts), way, err)
				}
			}
		}
	}
}

// TestPowerCut cuts the power at every step of transactions and lets any sectors be lost
// that were not flushed.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	const transactions = 60
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1 // other seeds lose other sectors
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, seed)
			for range transactions {
				b.commit()
			}
			turned := b.log.generation
			b.close()
			b.cut("closed")
			if turned < 4 {
				t.Errorf("the log has had %d segments, too few for this test", turned)
			}
			random := rand.New(rand.NewPCG(seed, 2))
			replayed := 0
			for i := range b.cuts {
				o := &b.cuts[i]
				for _, way := range ways {
					if random.IntN(len(ways)) > 1 {
						continue
					}
					path := found(t, o.files, way, random)
					err := o.judge(path, func(file *os.File, path string) error {
						done, err := putBack(file, path, noSyncs)
						replayed += done.Transactions
						return err
					})
					if err != nil {
						t.Fatalf("cut %d of %d, %s, on disk: %s: %v", i, len(b.cuts), o.what, way, err)
					}
					if err := os.RemoveAll(filepath.Dir(path)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if replayed == 0 {
				t.Error("nothing was ever recovered")
			}
		})
	}
}
