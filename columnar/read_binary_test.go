package columnar

import (
	"encoding/json"
	"math"
	"testing"
)

func TestBSONBecomesJSON(t *testing.T) {
	t.Parallel()
	// {"a": "x\"", "b": [1, true, null], "c": 0.5, "d": date 1970-01-01T00:00:00.001Z}
	array := "\x13\x00\x00\x00\x100\x00\x01\x00\x00\x00\x081\x00\x01\x0a2\x00\x00"
	body := "\x02a\x00\x03\x00\x00\x00x\"\x00" + "\x04b\x00" + array + "\x01c\x00\x00\x00\x00\x00\x00\x00\xe0\x3f" +
		"\x09d\x00\x01\x00\x00\x00\x00\x00\x00\x00" + "\x00"
	doc := string([]byte{byte(len(body) + 4), 0, 0, 0}) + body
	got, err := appendBSON(nil, []byte(doc))
	if want := `{"a":"x\"","b":[1,true,null],"c":0.5,"d":"1970-01-01T00:00:00.001Z"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	for n := range doc {
		if _, err := appendBSON(nil, []byte(doc[:n])); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
}

func FuzzBSON(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x00\x00"))
	f.Add([]byte("\x0c\x00\x00\x00\x10a\x00\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if out, err := appendBSON(nil, doc); err == nil && !json.Valid(out) {
			t.Errorf("not JSON: %s", out)
		}
	})
}

func TestHalfFloat(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x3C00: 1, 0xC000: -2, 0x3555: 0.333251953125, 0x7BFF: 65504, 0x0001: math.Ldexp(1, -24), 0x7C00: math.Inf(1), 0xFC00: math.Inf(-1),
	} {
		if got := halfFloat(bits); got != want {
			t.Errorf("%#04x: got %v, want %v", bits, got, want)
		}
	}
	if !math.IsNaN(halfFloat(0x7E00)) {
		t.Error("0x7E00 is not NaN")
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	raw := []byte{14, 0, 0, 0, 3, 0, 0, 0, 0xDC, 5, 0, 0}
	if got := string(appendInterval(nil, raw)); got != "P14M3DT1.5S" {
		t.Errorf("got %s", got)
	}
}
