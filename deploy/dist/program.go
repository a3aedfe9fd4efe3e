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

// machines are the architectures that releases are made for, as ELF calls them.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// A program is a binary of the release.
type program struct {
	arch  string // as Go calls it
	bytes []byte
	build *debug.BuildInfo
}

// readProgram reads a binary, and refuses one that is not what is shipped: for
// this architecture, linked statically, and yet at any address.
func readProgram(path, arch string) (*program, error) {
	b, err := os.ReadFile(path) //nolint:gosec // the caller's file
	if err != nil {
		return nil, err
	}
	if err := checkELF(b, arch); err != nil {
		return nil, fmt.Errorf("%s: %w; `make release` builds what is shipped", path, err)
	}
	build, err := buildinfo.Read(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &program{arch: arch, bytes: b, build: build}, nil
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
		return fmt.Errorf("it is for %v, not for %v", f.Machine, machine)
	}
	if f.Type != elf.ET_DYN {
		return errors.New("it is not position-independent")
	}
	for _, segment := range f.Progs {
		switch {
		case segment.Type == elf.PT_INTERP:
			return errors.New("it is not linked statically")
		case segment.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X:
			return errors.New("some of it can be written and executed")
		}
	}
	if needed, err := f.ImportedLibraries(); err != nil || len(needed) > 0 {
		return fmt.Errorf("it needs libraries: %v, error %w", needed, err)
	}
	return nil
}
