package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rowmill/rowmill/internal/must"
)

// readReleaseBinary refuses the test's own binary with changed ELF headers.
func TestCheckELF(t *testing.T) {
	t.Parallel()
	self := must.Get(os.Executable())(t)
	b := must.Get(os.ReadFile(self))(t)
	// In the ELF header, e_type is at byte 16 and e_machine at byte 18.
	head := func(kind, machine byte) []byte {
		changed := bytes.Clone(b)
		changed[16], changed[18] = kind, machine
		return changed
	}
	const executable, shared, amd64, arm64 = 2, 3, 62, 183
	for _, test := range []struct {
		bytes []byte
		arch  string
		want  string
	}{
		{b, "riscv64", "no releases are made"},
		{bytes.Repeat([]byte("#!/bin/sh\n"), 10), "amd64", "magic"},
		{head(shared, amd64), "arm64", "the binary is for EM_X86_64"},
		{head(shared, arm64), "amd64", "the binary is for EM_AARCH64"},
		{head(executable, arm64), "arm64", "not position-independent"},
	} {
		if err := checkELF(test.bytes, test.arch); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("for %s: error %v, want %q", test.arch, err, test.want)
		}
	}
}
