package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/blob"
)

// maxElement is the longest allowed element of a key, in bytes: a file name can have
// 255 bytes, and "+type" must fit behind the element.
const maxElement = 240

// checkKey returns an error for an invalid key. A valid key is safe to join to
// a path.
func checkKey(key string) error {
	for element := range strings.SplitSeq(key, "/") {
		if len(element) > maxElement {
			return fmt.Errorf("key %.80q: an element is %d bytes long, at most %d are allowed", key, len(element), maxElement)
		}
	}
	return blob.CheckKey(key)
}

// checkContextAndKey does the checks that every call with a key begins with.
func checkContextAndKey(ctx context.Context, key string) error {
	return cmp.Or(ctx.Err(), checkKey(key))
}

// isMissing reports whether err means that a file does not exist. ENOTDIR means this
// too: a parent folder of the file is an object, not a folder.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// translateMissing returns rowmill.ErrNotFound if err means that a file does not exist, and
// err otherwise.
func translateMissing(err error) error {
	if isMissing(err) {
		return rowmill.ErrNotFound
	}
	return err
}
