package redo

import (
	"bytes"
	"testing"
)

// FuzzRecord reads what may stand in a log: only what seal wrote is a record, and its
// pages are those that went in.
func FuzzRecord(f *testing.F) {
	f.Add([]byte("no record"), uint64(1), []byte("body"))
	f.Add(seal(make([]byte, recordBytes, 1000), 3, meta{1}), uint64(3), []byte{})
	f.Fuzz(func(t *testing.T, found []byte, generation uint64, body []byte) {
		if r, end, ok := readRecord(found, generation); ok {
			again := seal(append(make([]byte, recordBytes), r.body...), generation, r.meta)
			if n := recordBytes + len(r.body); end > len(found) || !bytes.Equal(again[:n], found[:n]) {
				t.Fatalf("%d bytes are a record that was never written", len(found))
			}
			_ = r.pages(func(uint64, []byte) error { return nil }) // whatever they say, it ends
		}
		if h, ok := readHeader(found); ok && !bytes.Equal(h.bytes()[:headerBytes], found[:headerBytes]) {
			t.Fatal("a header that was never written")
		}
		c := copier{pageSize: 512}
		page := append(bytes.Clone(body), make([]byte, 512*(len(body)/512+1)-len(body))...)
		c.body = append(make([]byte, recordBytes+entryHeader), page...)
		order.PutUint64(c.body[recordBytes:], 77)
		c.trim(len(page))
		sealed := seal(c.body, generation, meta{5})
		r, end, ok := readRecord(sealed, generation)
		if !ok || end != len(sealed) || r.meta != (meta{5}) {
			t.Fatalf("a record is not read back: %v, %d of %d bytes", ok, end, len(sealed))
		}
		shown := 0
		err := r.pages(func(id uint64, p []byte) error {
			shown++
			if id != 77 || !bytes.Equal(p, page) {
				t.Errorf("page %d came back as another", id)
			}
			return nil
		})
		if err != nil || shown != 1 || c.pages != int64(len(page)/512) {
			t.Errorf("%d pages, %v", shown, err)
		}
		if _, _, ok := readRecord(sealed, generation+1); ok {
			t.Error("a record of another generation was taken")
		}
		sealed[len(found)%(recordBytes+len(r.body))] ^= 1
		if _, _, ok := readRecord(sealed, generation); ok {
			t.Error("a record that was changed was taken")
		}
	})
}
