package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

// machines maps Go's names of the released architectures to the machine numbers in ELF
// files.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// A releaseBinary is a binary of the release.
type releaseBinary struct {
	arch  string // Go's name of the architecture
	bytes []byte
	build *debug.BuildInfo
}

// readReleaseBinary reads a binary. It refuses a binary for another architecture, with
// dynamic linking, or not position-independent.
func readReleaseBinary(path, arch string) (*releaseBinary, error) {
	b, err := os.ReadFile(path) //nolint:gosec // the caller's file
	if err != nil {
		return nil, err
	}
	if err := checkELF(b, arch); err != nil {
		return nil, fmt.Errorf("%s: %w; build the binary with `make release`", path, err)
	}
	build, err := buildinfo.Read(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &releaseBinary{arch: arch, bytes: b, build: build}, nil
}

func checkELF(b []byte, arch string) error {
	machine, known := machines[arch]
	if !known {
		return fmt.Errorf("no releases are made for %q", arch)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if f.Machine != machine {
		return fmt.Errorf("the binary is for %v, not for %v", f.Machine, machine)
	}
	if f.Type != elf.ET_DYN {
		return errors.New("the binary is not position-independent")
	}
	for _, segment := range f.Progs {
		switch {
		case segment.Type == elf.PT_INTERP:
			return errors.New("the binary is not linked statically")
		case segment.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X:
			return errors.New("the binary has a segment that is both writable and executable")
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	if len(needed) > 0 {
		return fmt.Errorf("the binary needs the libraries %v", needed)
	}
	return nil
}
