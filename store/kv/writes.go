package kv

// Writes are the writes of a transaction that wait for its end. The zero value has none.
type Writes struct {
	list []Write
	at   map[string]int // where the last write of a key stands in list
	err  error
}

// A Write is what is to become of a key.
type Write struct {
	Table Table
	Key   []byte
	Value []byte // nil removes the key
}

// Put notes a value.
func (w *Writes) Put(t Table, key, value []byte) {
	if value == nil {
		value = []byte{}
	}
	w.note(t, key, value)
}

// Delete notes that a key goes.
func (w *Writes) Delete(t Table, key []byte) { w.note(t, key, nil) }

func (w *Writes) note(t Table, key, value []byte) {
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

// Fail makes err the transaction's, unless it has one.
func (w *Writes) Fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Get returns what the transaction has written under a key, and whether it has.
func (w *Writes) Get(t Table, key []byte) (value []byte, written bool) {
	if len(w.at) == 0 {
		return nil, false
	}
	if i, written := w.at[string(t)+"\x00"+string(key)]; written {
		return w.list[i].Value, true
	}
	return nil, false
}

// All returns the writes in their order, one for each key, or the transaction's error.
func (w *Writes) All() ([]Write, error) { return w.list, w.err }
