package kv

import "slices"

// WriteSet collects the writes of a transaction until it ends. The zero value is empty.
type WriteSet struct {
	list []Write
	at   map[string]int // index in list of the last write of a key
	adds []CounterAdd
	err  error
}

// A TableKey is a key of a table.
type TableKey struct {
	Table Table
	Key   string
}

// A CounterAdd holds the amounts that a transaction adds to the counters of a key.
type CounterAdd struct {
	TableKey
	Amounts []int64
}

// A Write sets the value of a key, or removes the key.
type Write struct {
	Table Table
	Key   []byte
	Value []byte // nil removes the key
}

// Put adds a write of a value.
func (w *WriteSet) Put(t Table, key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	w.add(t, key, value)
}

// Delete adds the removal of a key.
func (w *WriteSet) Delete(t Table, key []byte) { w.add(t, key, nil) }

// add adds a write. It replaces an earlier write of the key.
func (w *WriteSet) add(t Table, key, value []byte) {
	if err := checkKey(t, key); err != nil {
		w.Fail(err)
		return
	}
	name := string(t) + "\x00" + string(key)
	if i, known := w.at[name]; known {
		w.list[i].Value = value
		return
	}
	if w.at == nil {
		w.at = map[string]int{}
	}
	w.at[name] = len(w.list)
	w.list = append(w.list, Write{t, []byte(name[len(t)+1:]), value})
}

// AddToCounters adds to counters, without reading them.
func (w *WriteSet) AddToCounters(t Table, key []byte, amounts ...int64) {
	w.adds = append(w.adds, CounterAdd{TableKey{t, string(key)}, slices.Clone(amounts)})
}

// Adds returns the amounts that the transaction adds to counters.
func (w *WriteSet) Adds() []CounterAdd { return w.adds }

// HasWrites reports whether there is anything to write, or a write was invalid.
func (w *WriteSet) HasWrites() bool { return w.err != nil || len(w.list)+len(w.adds) > 0 }

// Fail makes err the error of the transaction, unless it has one.
func (w *WriteSet) Fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Get returns the value that the transaction wrote under a key, nil for a removal. written
// is false if the transaction did not write the key.
func (w *WriteSet) Get(t Table, key []byte) (value []byte, written bool) {
	if len(w.at) == 0 {
		return nil, false
	}
	if i, written := w.at[string(t)+"\x00"+string(key)]; written {
		return w.list[i].Value, true
	}
	return nil, false
}

// All returns the writes in order, one for each key, or the transaction's error.
func (w *WriteSet) All() ([]Write, error) { return w.list, w.err }
