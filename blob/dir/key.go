package dir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/rowmill/rowmill"
)

const (
	maxKey     = 512 // longest key in bytes, by the contract
	maxElement = 240 // longest element in bytes: file names can have 255, and "+type" must fit
)

// checkKey returns an error for an invalid key. A valid key is safe to join to
// a path.
func checkKey(key string) error {
	if key == "" || len(key) > maxKey {
		return fmt.Errorf("key of %d bytes: 1 to %d are allowed", len(key), maxKey)
	}
	for element := range strings.SplitSeq(key, "/") {
		switch {
		case element == "", element == ".", element == "..":
			return fmt.Errorf("key %.80q: the element %q is not allowed", key, element)
		case len(element) > maxElement:
			return fmt.Errorf("key %.80q: an element is %d bytes long, at most %d are allowed", key, len(element), maxElement)
		}
		for i := range len(element) {
			if !keyByte(element[i]) {
				return fmt.Errorf("key %.80q: the byte %q is not allowed, only A-Z a-z 0-9 . _ ~ = - and /", key, element[i])
			}
		}
	}
	return nil
}

func keyByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '~' || c == '=' || c == '-'
}

// checkPrefix returns an error if prefix does not consist of whole key
// elements.
func checkPrefix(prefix string) error {
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %.80q: it must end in a slash", prefix)
	}
	return checkKey(strings.TrimSuffix(prefix, "/"))
}

// isMissing reports whether err means that a file does not exist. ENOTDIR means
// this too: a part of the key is an object, not a folder.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// notFound translates errors about missing files.
func notFound(err error) error {
	if isMissing(err) {
		return rowmill.ErrNotFound
	}
	return err
}
