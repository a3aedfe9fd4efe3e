// Package gpu tells which NVIDIA GPUs this machine has and how busy they are,
// and puts that into metrics. It asks nvidia-smi, which comes with the driver,
// so that the program needs neither C nor a driver to build or to run. It
// knows nothing of inference servers.
package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNone says that the machine has no NVIDIA GPU.
var ErrNone = errors.New("this machine has no NVIDIA GPU")

// unknown stands in the place of a figure that the driver does not tell.
const unknown = -1

// A GPU is one device and its state at a moment.
type GPU struct {
	Index       int
	Name        string  // such as "NVIDIA H200"
	UUID        string  // stays the same over restarts
	MemoryTotal int64   // bytes; -1 when unknown
	MemoryUsed  int64   // bytes; -1 when unknown
	Utilisation float64 // share of the last moments in which it was busy, 0 to 1; -1 when unknown, as with MIG
	Power       float64 // watts; -1 when unknown
	Temperature float64 // degrees Celsius; -1 when unknown
}

// A Source reads the GPUs of a machine.
type Source interface {
	// Read returns all GPUs, at least one, or ErrNone. Beside another error it
	// returns those that could be read.
	Read(ctx context.Context) ([]GPU, error)
}

// SMI reads the GPUs with the program nvidia-smi.
type SMI struct {
	// Timeout bounds one run. Default 5 s: without its persistence mode the
	// driver wakes every GPU of a large machine first.
	Timeout time.Duration
}

var _ Source = SMI{}

// query lists what is asked for. The name comes last, since it may hold a
// comma and nvidia-smi quotes nothing.
const query = "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu,power.draw,temperature.gpu,name"

// queried is how many fields that are.
const queried = 8

// Read runs nvidia-smi. A machine without it has no GPU.
func (s SMI) Read(ctx context.Context) ([]GPU, error) {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, ErrNone
	}
	limit := s.Timeout
	if limit == 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out, complaint bytes.Buffer
	command := exec.CommandContext(ctx, program, query, "--format=csv,noheader,nounits")
	command.Stdout, command.Stderr = &out, &complaint
	command.WaitDelay = time.Second // a child of it may hold the pipes
	runErr := command.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nvidia-smi gave no answer within %v: %w", limit, ctx.Err())
	}
	if strings.Contains(out.String(), "No devices were found") {
		return nil, ErrNone
	}
	gpus, err := parse(out.String())
	switch {
	case runErr != nil:
		said := strings.TrimSpace(complaint.String() + " " + out.String())
		return gpus, fmt.Errorf("nvidia-smi: %w: %s", runErr, firstLine(said))
	case err != nil:
		return gpus, err
	case len(gpus) == 0:
		return nil, ErrNone
	}
	return gpus, nil
}

// parse reads one GPU per line and reports the first line that is none.
func parse(text string) (gpus []GPU, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		g, ok := parseLine(line)
		if !ok {
			err = errors.Join(err, fmt.Errorf("nvidia-smi: no GPU in the line %q", firstLine(line)))
			continue
		}
		gpus = append(gpus, g)
	}
	return gpus, err
}

func parseLine(line string) (GPU, bool) {
	fields := strings.SplitN(line, ",", queried)
	if len(fields) != queried {
		return GPU{}, false
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	index, err := strconv.Atoi(fields[0])
	if err != nil || index < 0 || fields[1] == "" {
		return GPU{}, false
	}
	g := GPU{
		Index: index, UUID: fields[1], Name: fields[queried-1],
		MemoryTotal: unknown, MemoryUsed: unknown, Utilisation: unknown, Power: unknown, Temperature: unknown,
	}
	// What the driver does not tell stands in brackets: [N/A], [Not Supported].
	if mib, err := strconv.ParseInt(fields[2], 10, 64); err == nil {
		g.MemoryTotal = mib << 20
	}
	if mib, err := strconv.ParseInt(fields[3], 10, 64); err == nil {
		g.MemoryUsed = mib << 20
	}
	if percent, err := strconv.ParseFloat(fields[4], 64); err == nil {
		g.Utilisation = percent / 100
	}
	if watts, err := strconv.ParseFloat(fields[5], 64); err == nil {
		g.Power = watts
	}
	if degrees, err := strconv.ParseFloat(fields[6], 64); err == nil {
		g.Temperature = degrees
	}
	return g, true
}

// firstLine returns a text's first line, cut to what fits into a message.
func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	const limit = 200
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}
