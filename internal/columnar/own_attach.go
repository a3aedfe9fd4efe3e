package columnar

import (
	"fmt"
	"strings"
)

// Keys returns the keys of the key-value metadata that begin with prefix, in the order
// of the file.
func (t *Table) Keys(prefix string) (keys []string) {
	for _, kv := range t.meta.KeyValueMetadata {
		if strings.HasPrefix(kv.Key, prefix) {
			keys = append(keys, kv.Key)
		}
	}
	return keys
}

// ReadAttachment reads the bytes that TableWriter.Attach or Splicer.Attach stored under key.
func (t *Table) ReadAttachment(key string) ([]byte, error) {
	var offset, length int64
	if _, err := fmt.Sscanf(t.Meta(key), attachedAt, &offset, &length); err != nil || !t.containsRange(offset, length) {
		return nil, fmt.Errorf("read the position of %q: %w", key, ErrDamaged)
	}
	b := make([]byte, length)
	if err := readAt(t.src, b, offset); err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	return b, nil
}

// attachedAt is the format of a metadata value with the position of attached bytes:
// offset and length, in bytes.
const attachedAt = "%d+%d"

// formatPosition returns the metadata value for bytes that are attached at an offset.
func formatPosition(offset int64, length int) string { return fmt.Sprintf(attachedAt, offset, length) }
