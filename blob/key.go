package blob

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// maxKey is the longest key, in bytes.
const maxKey = 512

// Wrap puts the action that failed, and the key or prefix of its objects, before the
// text of err. It returns nil if err is nil.
func Wrap(err error, action, key string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", action, key, err)
}

// CheckCall returns the error of a context that ended, or says why key is not a
// valid key.
func CheckCall(ctx context.Context, key string) error {
	return cmp.Or(ctx.Err(), CheckKey(key))
}

// CheckPrefixCall is like CheckCall, for a prefix, which may be empty.
func CheckPrefixCall(ctx context.Context, prefix string) error {
	if prefix == "" {
		return ctx.Err()
	}
	return cmp.Or(ctx.Err(), CheckPrefix(prefix))
}

// CheckKey returns an error that says why key is not a valid key.
func CheckKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("key of %d bytes: 1 to %d are allowed", len(key), maxKey)
	}
	for element := range strings.SplitSeq(key, "/") {
		switch element {
		case "", ".", "..":
			return fmt.Errorf("key %.80q: the element %q is not allowed", key, element)
		}
		for i := range len(element) {
			if !isKeyByte(element[i]) {
				return fmt.Errorf("key %.80q: the byte %q is not allowed, only A-Z a-z 0-9 . _ ~ = - and /", key, element[i])
			}
		}
	}
	return nil
}

// CheckPrefix returns an error if prefix does not consist of whole key
// elements. An empty prefix is an error too.
func CheckPrefix(prefix string) error {
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %.80q: it must end in a slash", prefix)
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

func isKeyByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '~' || c == '=' || c == '-'
}
