package cluster

import (
	"math/rand/v2"
	"slices"
)

// A deck deals faults in random order. Each fault comes once in a pass.
type deck struct {
	random *rand.Rand
	all    []Fault
	left   []Fault         // the rest of this pass, in order
	struck map[string]bool // faults that struck at least once, by name
}

func newDeck(random *rand.Rand, all []Fault) *deck {
	return &deck{random: random, all: all, struck: map[string]bool{}}
}

// draw deals the next fault that fits; ok is false if no fault of this pass fits.
func (d *deck) draw(fits func(Fault) bool) (f Fault, ok bool) {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.all)
		d.random.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	at := slices.IndexFunc(d.left, fits)
	if at < 0 {
		return Fault{}, false
	}
	f = d.left[at]
	d.left = slices.Delete(d.left, at, at+1)
	return f, true
}

// done notes which drawn faults have struck. The others come next.
func (d *deck) done(drawn []Fault, struck []string) {
	for _, name := range struck {
		d.struck[name] = true
	}
	for _, f := range drawn {
		if !slices.Contains(struck, f.Name) {
			d.left = slices.Insert(d.left, 0, f)
		}
	}
}

// complete reports whether every fault has struck.
func (d *deck) complete() bool { return len(d.struck) == len(d.all) }

// fits reports whether a fault can strike a cluster of a kind. With Sentinels any fault of
// Redis may cause a failover, so such a cluster is for split brains only.
func (c Config) fits(f Fault) bool {
	return (c.Hosts || !f.Hosts && !f.Root) && (c.Secure || !f.Keys) && c.Sentinels == f.Fails
}
