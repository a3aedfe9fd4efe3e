package cluster

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// profile is what a member tells of itself once, as memberlist's metadata.
type profile struct {
	Rowmill  int    `json:"rowmill"` // form of this document, always 1: tells ours from other programs' members
	Node     string `json:"node"`
	Peer     string `json:"peer,omitempty"`
	API      string `json:"api,omitempty"`
	Engines  bool   `json:"engines,omitempty"`
	Owns     bool   `json:"owns,omitempty"`
	Protocol int    `json:"protocol"`
	Started  int64  `json:"started"` // Unix time in µs, by the member's clock
}

// maxProfile bounds a profile, in bytes: memberlist takes 512 and panics beyond.
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
		return profile{}, errors.New("it is no Rowmill node of a version that this one knows")
	}
	return p, nil
}

func (p profile) started() time.Time { return time.UnixMicro(p.Started) }

// news is a message about one member, of what it says of itself or that it
// leaves. On the wire: kind, length of the ID and ID, version, length of the
// document and document; numbers are varints.
type news struct {
	id      string
	leaving bool
	version uint64 // of the document: grows with each that the member publishes
	doc     []byte
}

// The kinds on the wire. Others may follow: unknown ones are skipped, which is
// why a document has a length although it comes last.
const (
	kindState   = 1
	kindLeaving = 2
)

func (n news) append(to []byte) []byte {
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

// errNews says that a message cannot be read.
var errNews = errors.New("malformed message about a member")

// decodeNews reads messages until the end and calls each with those it knows.
// Documents over maxDoc bytes are malformed. What each gets is a copy.
func decodeNews(text []byte, maxDoc int, each func(news)) error {
	for len(text) > 0 {
		kind := text[0]
		id, rest, ok := cut(text[1:], maxID)
		if !ok {
			return errNews
		}
		version, n := binary.Uvarint(rest)
		if n <= 0 {
			return errNews
		}
		doc, rest, ok := cut(rest[n:], maxDoc)
		if !ok {
			return errNews
		}
		text = rest
		if kind == kindState || kind == kindLeaving {
			each(news{id: string(id), leaving: kind == kindLeaving, version: version, doc: append([]byte(nil), doc...)})
		}
	}
	return nil
}

// cut takes a length and that many bytes, limit at most, off the front.
func cut(text []byte, limit int) (field, rest []byte, ok bool) {
	length, n := binary.Uvarint(text)
	if n <= 0 || length > uint64(limit) || length > uint64(len(text)-n) {
		return nil, nil, false
	}
	end := n + int(length)
	return text[n:end], text[end:], true
}
