package settings

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
)

// Units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// Bytes is a size in bytes. In settings it is a number of bytes, or a number with a
// unit, such as 16MiB or 1.5GB.
type Bytes int64

// units lists the units of sizes. The longest come first, so that "MiB" is not read as
// "B".
var units = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// ParseBytes reads a size, such as 16MiB or 10GB.
func ParseBytes(text string) (Bytes, error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return Bytes(n), nil
	}
	for _, unit := range units {
		number, found := strings.CutSuffix(text, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || n < 0 || n*unit.size >= math.MaxInt64 || n != n {
			break
		}
		return Bytes(n * unit.size), nil
	}
	return 0, fmt.Errorf("%q is not a size; write a number of bytes or a unit, such as 16MiB or 10GiB", text)
}

// String returns the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	for i, name := range []string{"TiB", "GiB", "MiB", "KiB"} {
		unit := TiB >> (10 * i)
		if b != 0 && b%unit == 0 {
			return strconv.FormatInt(int64(b/unit), 10) + name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalYAML writes the size as String does.
func (b Bytes) MarshalYAML() (any, error) { return b.String(), nil }

// redacted is the text that is printed in place of a secret.
const redacted = "(redacted)"

// Secret is a text that must not be printed: every way to print it shows a placeholder.
// Reveal returns the text itself.
type Secret string

// Reveal returns the secret.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder, or nothing if there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is like String: %#v does not show the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// LogValue returns a placeholder, so that logs do not show the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns a placeholder, so that JSON does not show the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML returns a placeholder, so that YAML does not show the secret.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
