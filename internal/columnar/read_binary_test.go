package columnar

import (
	"math"
	"testing"
)

func TestHalfFloat(t *testing.T) {
	t.Parallel()
	for bits, want := range map[uint16]float64{
		0x0000: 0, 0x3C00: 1, 0xC000: -2, 0x3555: 0.333251953125, 0x7BFF: 65504, 0x0001: math.Ldexp(1, -24), 0x7C00: math.Inf(1), 0xFC00: math.Inf(-1),
	} {
		if got := float16ToFloat64(bits); got != want {
			t.Errorf("%#04x: got %v, want %v", bits, got, want)
		}
	}
	if !math.IsNaN(float16ToFloat64(0x7E00)) {
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
