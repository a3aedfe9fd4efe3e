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
	maxKey     = 512 // bytes of a key, by the contract
	maxElement = 240 // bytes between slashes: file systems end at 255, and "+type" must fit
)

// checkKey refuses what is no key; its rules make a key safe to join to a path.
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

// checkPrefix refuses what is no prefix of whole elements.
func checkPrefix(prefix string) error {
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %.80q: it must end in a slash", prefix)
	}
	return checkKey(strings.TrimSuffix(prefix, "/"))
}

// isMissing reports whether err says that a file is not there: ENOTDIR does
// too, where a key continues that of an object.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// notFound translates the errors of a file that is not there.
func notFound(err error) error {
	if isMissing(err) {
		return rowmill.ErrNotFound
	}
	return err
}
