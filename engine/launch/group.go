package launch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pollInterval is the time between two looks at processes that are not children of this process.
const pollInterval = 20 * time.Millisecond

// endGroup sends SIGTERM to all processes of a group, and SIGKILL to processes that still
// run after grace. With grace 0 it sends only SIGKILL.
func endGroup(group int, grace time.Duration) {
	if grace > 0 {
		_ = syscall.Kill(-group, syscall.SIGTERM) // an error means that no process is left
		for deadline := time.Now().Add(grace); groupRuns(group) && time.Now().Before(deadline); {
			time.Sleep(pollInterval)
		}
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

// groupRuns reports whether a process of the group runs. On Linux, an ended process does not
// count, even if its parent has not waited for it.
func groupRuns(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return true // not Linux
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, found := readProcess(pid); found && p.group == group && !p.ended {
			return true
		}
	}
	return false
}

// A processState is the state of a process in the operating system.
type processState struct {
	group int
	ended bool   // the process has ended, and its parent has not waited for it
	start string // time of the start, in clock ticks since the start of the system
}

// readProcess returns the state of a process. It finds none if the process does not
// exist, or if the system is not Linux.
func readProcess(pid int) (p processState, found bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	// The fields after the name; the name may contain spaces and ")".
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const state, group, start = 0, 2, 19 // proc(5) numbers them 3, 5 and 22
	if len(fields) <= start {
		return p, false
	}
	p.group, err = strconv.Atoi(fields[group])
	p.ended, p.start = fields[state] == "Z" || fields[state] == "X", fields[start]
	return p, err == nil
}
