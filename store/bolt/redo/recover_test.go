package redo

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// crash copies a bench's files as a crash of the process leaves them, and returns the
// path of the database.
func (b *bench) crash() string {
	b.t.Helper()
	folder := b.t.TempDir()
	for _, name := range append([]string{b.path}, segmentsOf(b.path)...) {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(name)), text, 0o600)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return filepath.Join(folder, "records.db")
}

func recoverAt(t *testing.T, path string) (Recovered, error) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	done, err := Recover(file, path)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return done, err
}

// update changes a database by bbolt alone, as versions without a log do.
func update(t *testing.T, path string, options *bbolt.Options, value string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, options)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("later"))
		if err != nil {
			return err
		}
		return b.Put([]byte("value"), []byte(value))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func contentAt(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := content(db)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

// After a crash of the process a version without a log may go on with the file.
func TestAnEarlierVersionGoesOn(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]struct {
		*bbolt.Options
		updates int
	}{
		"with a list of free pages": {nil, 1},
		"without":                   {&bbolt.Options{NoFreelistSync: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 11)
			for range 30 {
				b.commit()
			}
			path := b.crash()
			b.close()
			for range options.updates {
				update(t, path, options.Options, "kept")
			}
			done, err := recoverAt(t, path)
			if err != nil || !done.Dropped || done.Transactions != 0 {
				t.Errorf("%+v, %v", done, err)
			}
			want := maps.Clone(b.states[len(b.states)-1])
			want["later/value"] = "kept"
			if got := contentAt(t, path); !maps.Equal(got, want) {
				t.Error("the file is not what the earlier version left")
			}
			if done, err := recoverAt(t, path); err != nil || done != (Recovered{}) {
				t.Errorf("once more: %+v, %v", done, err)
			}
		})
	}
}

// An older state of the file that was put back from a backup is not overwritten.
func TestABackupBesideALog(t *testing.T) {
	t.Parallel()
	b := newBench(t, 12)
	for range 10 {
		b.commit()
	}
	early := b.crash()
	if _, err := recoverAt(t, early); err != nil {
		t.Fatal(err)
	}
	backup, err := os.ReadFile(early)
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		b.commit()
	}
	path := b.crash()
	b.close()
	if err := os.WriteFile(path, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = recoverAt(t, path)
	if err == nil || !strings.Contains(err.Error(), path+".redo0") || !strings.Contains(err.Error(), "move the two away") {
		t.Errorf("%v, want it to name the log and the remedy", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(backup) {
		t.Errorf("the backup was changed, %v", err)
	}
}

// A record that is lost in the middle of the log is no end of it.
func TestADamagedLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, 13)
	for b.log.segments[1].file == nil || b.log.segments[b.log.current].at < testSegment/2 {
		b.commit()
	}
	path := b.crash()
	current, older := paths(path)[b.log.current], paths(path)[1-b.log.current]
	b.close()
	text, err := os.ReadFile(current)
	if err != nil {
		t.Fatal(err)
	}
	text[align+recordBytes]++
	if err := os.WriteFile(current, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := recoverAt(t, path); err == nil || !strings.Contains(err.Error(), current+" is damaged at byte 4096") {
		t.Errorf("%v, want where it is damaged", err)
	}
	text[align+recordBytes]--
	if err := errors.Join(os.WriteFile(current, text, 0o600), os.Remove(older)); err != nil {
		t.Fatal(err)
	}
	if _, err := recoverAt(t, path); err == nil || !strings.Contains(err.Error(), "which is lost") {
		t.Errorf("%v, want what is lost", err)
	}
}

// A log that cannot be made is done without until it can.
func TestNoRoomForALog(t *testing.T) {
	t.Parallel()
	b := newBench(t, 14)
	blocked := paths(b.path)[0]
	if err := os.Mkdir(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	commit := func(ready bool) {
		t.Helper()
		if b.log.Ready() != ready {
			t.Fatalf("ready: %v", !ready)
		}
		state := maps.Clone(b.states[len(b.states)-1])
		var written *bbolt.Tx
		b.db.NoSync = ready
		err := b.db.Update(func(tx *bbolt.Tx) error {
			written = tx
			return change(tx, state, len(b.states), b.random)
		})
		stats := written.Stats()
		if err := errors.Join(err, b.log.Commit(stats.GetPageCount())); err != nil {
			t.Fatal(err)
		}
		b.states = append(b.states, state)
	}
	commit(false)
	commit(false)
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	commit(true)
	commit(true)
	path := b.crash()
	b.close()
	if done, err := recoverAt(t, path); err != nil || done.Transactions != 2 {
		t.Errorf("%+v, %v", done, err)
	}
	want := b.states[len(b.states)-1]
	if !maps.Equal(contentAt(t, path), want) || !maps.Equal(contentAt(t, b.path), want) {
		t.Error("a transaction is lost")
	}
}
