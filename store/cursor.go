package store

import (
	"encoding/base64"

	"github.com/rowmill/rowmill"
)

// cursorVersion leads every cursor, so that their form may change.
const cursorVersion = 1

// EncodeCursor makes a cursor of the place in a list where a page ends: the
// time of its last entry, in a width that the store chooses, and the id.
func EncodeCursor(place []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{cursorVersion}, place...))
}

// CheckPage returns the place behind which a page begins, or nil for the
// newest entry. width is that of a place's time. A limit below 1 and a cursor
// that EncodeCursor did not make are a *rowmill.InvalidError.
func CheckPage(limit int, cursor string, width int) ([]byte, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	if cursor == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) <= 1+width || len(raw) > 1+width+MaxName || raw[0] != cursorVersion ||
		EncodeCursor(raw[1:]) != cursor {
		return nil, BadCursor()
	}
	return raw[1:], nil
}

// BadCursor is the error of a cursor that is none.
func BadCursor() error {
	return rowmill.Invalid("cursor", "The cursor is not one this service gave out: pass the next_cursor of the previous page unchanged, or none to start from the newest job.")
}
