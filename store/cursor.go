package store

import (
	"encoding/base64"

	"github.com/rowmill/rowmill"
)

// cursorVersion is the first byte of every cursor, so that the format can change.
const cursorVersion = 1

// EncodeCursor encodes the position of the last entry of a page. The position is the
// entry's time, in a number of bytes that the store chooses, and the entry's id.
func EncodeCursor(position []byte) string {
	return base64.RawURLEncoding.EncodeToString(append([]byte{cursorVersion}, position...))
}

// DecodePageCursor decodes a cursor and returns the position after which the page begins, or nil
// for the newest entry. width is the number of bytes that encode the time in the cursor.
// A limit below 1, and a cursor that EncodeCursor did not make, are a
// *rowmill.InvalidError.
func DecodePageCursor(limit int, cursor string, width int) ([]byte, error) {
	if limit <= 0 {
		return nil, rowmill.Invalid("limit", "The limit is %d and must be at least 1.", limit)
	}
	if cursor == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) <= 1+width || len(raw) > 1+width+MaxName || raw[0] != cursorVersion ||
		EncodeCursor(raw[1:]) != cursor {
		return nil, NewCursorError()
	}
	return raw[1:], nil
}

// NewCursorError returns the error for an invalid cursor.
func NewCursorError() error {
	return rowmill.Invalid("cursor", "The cursor is not one this service gave out: pass the next_cursor of the previous page unchanged, or none to start from the newest job.")
}
