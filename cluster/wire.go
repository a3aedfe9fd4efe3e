package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// profile is the fixed description of a member. memberlist sends it as the metadata of
// a node.
type profile struct {
	Rowmill  int    `json:"rowmill"` // format of this document, always 1; the members of other programs do not have this field
	Node     string `json:"node"`
	Peer     string `json:"peer,omitempty"`
	API      string `json:"api,omitempty"`
	Engines  bool   `json:"engines,omitempty"`
	Owns     bool   `json:"owns,omitempty"`
	Protocol int    `json:"protocol"`
	Started  int64  `json:"started"` // Unix time in µs, by the member's clock
}

// maxProfile is the largest size of an encoded profile, in bytes: memberlist panics if
// the metadata of a node exceeds 512 bytes.
const maxProfile = 400

func encodeProfile(p profile) ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("describe this node: %w", err)
	}
	if len(text) > maxProfile {
		return nil, fmt.Errorf("the description of this node has %d bytes, %d are allowed: shorten the longest of Node (%d bytes), Peer (%d) and API (%d)",
			len(text), maxProfile, len(p.Node), len(p.Peer), len(p.API))
	}
	return text, nil
}

func decodeProfile(text []byte) (profile, error) {
	var p profile
	if err := json.Unmarshal(text, &p); err != nil || p.Rowmill != 1 {
		return profile{}, errors.New("not a Rowmill node, or a node with an unknown format of its description")
	}
	return p, nil
}

func (p profile) started() time.Time { return time.UnixMicro(p.Started) }

// memberUpdate is a message about one member: its new state, or a goodbye, which says that it
// leaves. On the wire: kind, length of the ID, ID, version, length of the document,
// document. Numbers are varints.
type memberUpdate struct {
	id      string
	leaving bool
	version uint64 // version of doc, which grows with each document that the member publishes
	doc     []byte
}

// The kinds of an encoded update. Later releases may add kinds. To skip an update of an
// unknown kind, receivers need the length of the document, although the document comes
// last.
const (
	kindState   = 1
	kindLeaving = 2
)

// append appends the encoded update to a byte slice.
func (n memberUpdate) append(to []byte) []byte {
	kind := byte(kindState)
	if n.leaving {
		kind = kindLeaving
	}
	to = append(to, kind)
	to = binary.AppendUvarint(to, uint64(len(n.id)))
	to = append(to, n.id...)
	to = binary.AppendUvarint(to, n.version)
	to = binary.AppendUvarint(to, uint64(len(n.doc)))
	return append(to, n.doc...)
}

// errMalformed reports a message that cannot be decoded.
var errMalformed = errors.New("malformed message about a member")

// decodeUpdates decodes all messages in text and calls each with every known message.
// A document over maxDoc bytes is malformed. The update that each gets is a copy.
func decodeUpdates(text []byte, maxDoc int, each func(memberUpdate)) error {
	for len(text) > 0 {
		kind := text[0]
		id, rest, ok := cutField(text[1:], maxID)
		if !ok {
			return errMalformed
		}
		version, n := binary.Uvarint(rest)
		if n <= 0 {
			return errMalformed
		}
		doc, rest, ok := cutField(rest[n:], maxDoc)
		if !ok {
			return errMalformed
		}
		text = rest
		if kind == kindState || kind == kindLeaving {
			each(memberUpdate{id: string(id), leaving: kind == kindLeaving, version: version, doc: append([]byte(nil), doc...)})
		}
	}
	return nil
}

// cutField reads a length and then that many bytes from the start of text. ok is false if
// the length is over limit or text is too short.
func cutField(text []byte, limit int) (field, rest []byte, ok bool) {
	length, n := binary.Uvarint(text)
	if n <= 0 || length > uint64(limit) || length > uint64(len(text)-n) {
		return nil, nil, false
	}
	closing := n + int(length)
	return text[n:closing], text[closing:], true
}
