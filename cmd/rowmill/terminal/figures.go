package terminal

import (
	"fmt"
	"strconv"
	"time"
)

// FormatCount formats a number with commas between thousands.
func FormatCount(n int64) string {
	digits := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(digits) - 3; i > start; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// formatShort formats a number in four or five characters: 950, 1.2k, 35k, 4.5M.
func formatShort(n float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		// Rounding can move a number to the next unit: 999.5 becomes 1.0k.
		if n >= 0.9995*unit.size {
			if v := n / unit.size; v < 9.95 {
				return strconv.FormatFloat(v, 'f', 1, 64) + unit.name
			}
			return strconv.FormatFloat(n/unit.size, 'f', 0, 64) + unit.name
		}
	}
	if n > 0 && n < 9.95 {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 0, 64)
}

// FormatDuration formats a duration like a clock: 0:07, 12:30, 3:05:00, or 5d 3h.
func FormatDuration(d time.Duration) string {
	d = max(d.Round(time.Second), 0)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%dd %dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%d:%02d:%02d", h, m, s)
	}
	return fmt.Sprintf("%d:%02d", m, s)
}

// FormatAge formats the time since an event: 12s, 5m, 3h, 8d.
func FormatAge(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
