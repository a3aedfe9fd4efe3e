package main

import "testing"

// A fault that the code has outgrown would be planted nowhere.
func TestPlants(t *testing.T) {
	t.Parallel()
	const root = "../../.."
	plants, err := read(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(plants) < 10 {
		t.Errorf("%d faults can be planted, want ten", len(plants))
	}
	for _, p := range plants {
		if _, err := p.in(root); err != nil {
			t.Error(err)
		}
	}
}
