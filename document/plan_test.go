package document

import (
	"reflect"
	"testing"
)

// A document as it is written, one with members in another order or unknown ones: none is
// left to encoding/json, which takes several times as long.
func TestPlansReadWhatIsWritten(t *testing.T) {
	t.Parallel()
	type thing struct {
		ID   string         `json:"id"`
		N    int            `json:"n"`
		Free map[string]any `json:"free"`
		List []string       `json:"list"`
	}
	for _, raw := range []string{
		`{"id":"a","n":1,"free":{"x":[1,"y"]},"list":["b","c"]}`, `{"n":1,"id":"a"}`, `{"later":{"a":[1]},"id":"a"}`, `{}`,
	} {
		var got thing
		d := &decoder{text: raw}
		if read := makePlan(reflect.TypeFor[thing](), nil); !read(d, reflect.ValueOf(&got).Elem()) {
			t.Errorf("%s is left to encoding/json", raw)
		}
	}
}
