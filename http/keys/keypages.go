package keys

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/store"
)

// maxKeysPage limits the keys on a page, because each key needs a read of the store for
// the time of its last use.
const maxKeysPage = 100

// selectPage returns a page of the keys of an account: at most limit keys after a cursor.
// next is the cursor of the next page, empty if there is none. An empty account means
// all accounts. all must have the order of store.ListKeys. If keys are created or
// deleted between two pages, no other key is left out or repeated.
func selectPage(all []store.APIKey, account string, limit int, cursor string) (page []store.APIKey, next string, err error) {
	seen := func(store.APIKey) bool { return false }
	if cursor != "" {
		last, err := parseCursor(cursor)
		if err != nil {
			return nil, "", err
		}
		seen = func(k store.APIKey) bool {
			return cmp.Or(k.Created.Compare(last.Created), strings.Compare(k.ID, last.ID)) <= 0
		}
	}
	rest := slices.DeleteFunc(slices.Clone(all), func(k store.APIKey) bool {
		return account != "" && k.Account != account || seen(k)
	})
	if len(rest) <= limit {
		return rest, "", nil
	}
	return rest[:limit], cursorAfter(rest[limit-1]), nil
}

// cursorAfter returns the cursor of the page that begins after a key.
func cursorAfter(k store.APIKey) string {
	return base64.RawURLEncoding.EncodeToString([]byte(k.Created.UTC().Format(time.RFC3339Nano) + " " + k.ID))
}

// parseCursor decodes a cursor. The returned key has only the fields that selectPage compares.
func parseCursor(cursor string) (k store.APIKey, err error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	at, id, found := strings.Cut(string(text), " ")
	created, timeErr := time.Parse(time.RFC3339Nano, at)
	if err != nil || timeErr != nil || !found {
		return k, rowmill.Invalid("cursor", "is not the next_cursor of an earlier page; leave it out to start from the first page")
	}
	return store.APIKey{ID: id, Created: created}, nil
}
