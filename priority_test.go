package rowmill

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPriority(t *testing.T) {
	t.Parallel()
	for _, p := range Priorities() {
		if err := p.Validate(); err != nil || p.ClampToKnown() != p {
			t.Errorf("priority %d: error %v, nearest %d", p, err, p.ClampToKnown())
		}
		if text, err := json.Marshal(p); err != nil || string(text) != string(rune('0'+int(p))) {
			t.Errorf("priority %d is %s in JSON, error %v", p, text, err)
		}
		if p.IsUrgent() != (p == 0) {
			t.Errorf("priority %d is urgent: %v", p, p.IsUrgent())
		}
		if number := string(rune('0' + int(p))); !strings.Contains(PriorityValues, number+" (") {
			t.Errorf("PriorityValues %q does not explain %s", PriorityValues, number)
		}
	}
	for p, nearest := range map[Priority]Priority{-1: Prototyping, Lowest + 1: Lowest} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), PriorityValues) || p.ClampToKnown() != nearest {
			t.Errorf("priority %d: error %v, nearest %d", p, err, p.ClampToKnown())
		}
	}
}
