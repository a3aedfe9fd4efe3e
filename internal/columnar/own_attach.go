package columnar

import (
	"fmt"
	"strings"
)

// Keys returns the metadata keys that begin with prefix, in order.
func (t *Table) Keys(prefix string) (keys []string) {
	for _, kv := range t.meta.KeyValueMetadata {
		if strings.HasPrefix(kv.Key, prefix) {
			keys = append(keys, kv.Key)
		}
	}
	return keys
}

// Attached reads the bytes that a writer attached under key.
func (t *Table) Attached(key string) ([]byte, error) {
	var offset, length int64
	if _, err := fmt.Sscanf(t.Meta(key), attachedAt, &offset, &length); err != nil || !t.holds(offset, length) {
		return nil, fmt.Errorf("read the position of %q: %w", key, ErrDamaged)
	}
	b := make([]byte, length)
	if err := readAt(t.src, b, offset); err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	return b, nil
}

// attachedAt is the format of a metadata value that stores the position of
// attached bytes: offset and length, in bytes.
const attachedAt = "%d+%d"

func placeOf(offset int64, length int) string { return fmt.Sprintf(attachedAt, offset, length) }
