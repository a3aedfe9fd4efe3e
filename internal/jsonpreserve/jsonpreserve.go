// Package jsonpreserve reads and writes the JSON documents of the store. When it rewrites
// a document, it keeps the members that a newer version of this program added. It
// does not know the purpose of the documents.
package jsonpreserve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
)

// Decode reads a document into v. Numbers in fields without a type (any) become
// json.Number, because a float64 would change a seed of 64 bits.
func Decode[T string | []byte](raw T, v any) error { return newNumberDecoder(string(raw)).Decode(v) }

func newNumberDecoder(text string) *json.Decoder {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d
}

// Rewrite encodes v, which replaces the stored document. It keeps the members of
// stored that v's type does not have, at every level:
//
//   - in structs, also behind pointers;
//   - in the values of maps, by key;
//   - in the elements of lists. An element of v continues a stored element that is
//     equal to it, or else one that has the same first member.
//
// A map entry, element or object that v no longer has is removed, together with its
// unknown members. Types with their own encoding are replaced completely.
//
// stored may be empty. An error means that v cannot be encoded, or that stored cannot
// be decoded into v's type.
func Rewrite(stored []byte, v any) ([]byte, error) {
	fresh, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	t := reflect.TypeOf(v)
	before := reflect.New(t)
	if hasOnlyKnownMembers(stored, t, before) {
		plain.add(t, fresh)
		return fresh, nil
	}
	before.Elem().SetZero()
	if err := Decode(stored, before.Interface()); err != nil {
		return nil, fmt.Errorf("decode the stored document of %d bytes: %w", len(stored), err)
	}
	known, err := json.Marshal(before.Elem().Interface())
	if err != nil {
		return nil, err
	}
	return merge(stored, known, fresh)
}

// hasOnlyKnownMembers reports whether t has all members of stored. It may decode stored into v.
func hasOnlyKnownMembers(stored []byte, t reflect.Type, v reflect.Value) bool {
	if len(stored) == 0 || plain.has(t, stored) {
		return true
	}
	strict := newNumberDecoder(string(stored))
	strict.DisallowUnknownFields()
	return strict.Decode(v.Interface()) == nil
}

// plain is the set of hashes of documents that Rewrite has recently returned and that
// have no unknown members. Rewrite need not decode such a stored document. This saves
// time, because a node mostly rewrites its own documents, and decoding a record takes
// three times as long as encoding it.
var plain = hashCache{seed: maphash.MakeSeed()}

type hashCache struct {
	seed  maphash.Seed
	slots [4096]atomic.Uint64 // one hash per slot; more slots than documents that a node writes in a second
}

func (h *hashCache) has(t reflect.Type, doc []byte) bool {
	sum := h.hashOf(t, doc)
	return h.slots[sum%uint64(len(h.slots))].Load() == sum
}

func (h *hashCache) add(t reflect.Type, doc []byte) {
	sum := h.hashOf(t, doc)
	h.slots[sum%uint64(len(h.slots))].Store(sum)
}

func (h *hashCache) hashOf(t reflect.Type, doc []byte) uint64 {
	var of maphash.Hash
	of.SetSeed(h.seed)
	maphash.WriteComparable(&of, t)
	_, _ = of.Write(doc)
	return of.Sum64()
}

// merge returns fresh with those members of stored that are missing in known. known is
// stored without the members that this version does not know.
func merge(stored, known, fresh json.RawMessage) (json.RawMessage, error) {
	if bytes.Equal(stored, known) {
		return fresh, nil
	}
	if s, f := decodeOrZero[map[string]json.RawMessage](stored), decodeOrZero[map[string]json.RawMessage](fresh); s != nil && f != nil {
		return mergeMembers(s, decodeOrZero[map[string]json.RawMessage](known), f)
	}
	s, k, f := decodeOrZero[[]json.RawMessage](stored), decodeOrZero[[]json.RawMessage](known), decodeOrZero[[]json.RawMessage](fresh)
	if f != nil && len(s) == len(k) {
		return mergeElements(s, k, f)
	}
	return fresh, nil
}

func mergeMembers(stored, known, fresh map[string]json.RawMessage) (json.RawMessage, error) {
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		own := spelling(name, known, fresh)
		before, isKnown := known[own]
		now, stays := fresh[own]
		var err error
		switch {
		case stays:
			fresh[own], err = merge(stored[name], before, now)
		case !isKnown:
			fresh[own] = stored[name]
		}
		if err != nil {
			return nil, err
		}
	}
	return json.Marshal(fresh)
}

// spelling returns the name of a member as this version spells it, because
// encoding/json ignores case when it reads names.
func spelling(name string, objects ...map[string]json.RawMessage) string {
	for _, object := range objects {
		if _, exact := object[name]; exact {
			return name
		}
	}
	for _, object := range objects {
		for own := range object {
			if strings.EqualFold(own, name) {
				return own
			}
		}
	}
	return name
}

func mergeElements(stored, known, fresh []json.RawMessage) (json.RawMessage, error) {
	used, merged := make([]bool, len(known)), make([]bool, len(fresh))
	// Match equal elements first, because several elements may have the same first
	// member.
	for _, key := range []func(json.RawMessage) string{text, firstMember} {
		places := map[string][]int{}
		for i, element := range known {
			if !used[i] {
				places[key(element)] = append(places[key(element)], i)
			}
		}
		for i, element := range fresh {
			at := places[key(element)]
			if merged[i] || key(element) == "" || len(at) == 0 {
				continue
			}
			var err error
			if fresh[i], err = merge(stored[at[0]], known[at[0]], element); err != nil {
				return nil, err
			}
			places[key(element)], used[at[0]], merged[i] = at[1:], true, true
		}
	}
	return json.Marshal(fresh)
}

func text(element json.RawMessage) string { return string(element) }

// firstMember returns the first member of an object as text, or "".
func firstMember(object json.RawMessage) string {
	d := newNumberDecoder(string(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return ""
	}
	name, err := d.Token()
	var value json.RawMessage
	if err != nil || d.Decode(&value) != nil {
		return ""
	}
	return fmt.Sprintf("%v:%s", name, value)
}

// decodeOrZero returns the object or the list in a JSON text, or nil if the text is
// something else.
func decodeOrZero[T map[string]json.RawMessage | []json.RawMessage](text json.RawMessage) (v T) {
	_ = json.Unmarshal(text, &v)
	return v
}
