// Package gpu reads the NVIDIA GPUs of this machine and how busy they are, and exports
// metrics. It runs nvidia-smi, which comes with the driver, so that the program needs
// neither C nor a driver to build or to run. It does not know inference servers.
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

	"github.com/rowmill/rowmill/internal/textfmt"
)

// ErrNone means that the machine has no NVIDIA GPU.
var ErrNone = errors.New("this machine has no NVIDIA GPU")

// unknown is the value of a measurement that the driver does not report.
const unknown = -1

// A GPU is one GPU device with its state at one time.
type GPU struct {
	Index       int
	Name        string  // such as "NVIDIA H200"
	UUID        string  // stays the same after a restart
	MemoryTotal int64   // bytes; -1 when unknown
	MemoryUsed  int64   // bytes; -1 when unknown
	Utilisation float64 // share of the recent time in which the GPU was busy, 0 to 1; -1 when unknown, for example with MIG
	Power       float64 // watts; -1 when unknown
	Temperature float64 // degrees Celsius; -1 when unknown
}

// A Source reads the GPUs of a machine.
type Source interface {
	// Read returns all GPUs, at least one, or ErrNone. With another error it returns
	// the GPUs that it could read.
	Read(ctx context.Context) ([]GPU, error)
}

// NvidiaSMI reads the GPUs with the program nvidia-smi.
type NvidiaSMI struct {
	// Timeout limits one run of nvidia-smi. Default 5 s: without persistence mode, the
	// driver first wakes every GPU of the machine.
	Timeout time.Duration
}

var _ Source = NvidiaSMI{}

// query lists the fields that nvidia-smi prints for each GPU. The name is last, because
// it may contain a comma and nvidia-smi does not quote it.
const query = "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu,power.draw,temperature.gpu,name"

// queried is the number of fields in query.
const queried = 8

// Read runs nvidia-smi. If this program is missing, it returns ErrNone: the machine has
// no GPU.
func (s NvidiaSMI) Read(ctx context.Context) ([]GPU, error) {
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
	command.WaitDelay = time.Second // a child of nvidia-smi may keep the pipes open
	runErr := command.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nvidia-smi gave no answer within %v: %w", limit, ctx.Err())
	}
	if strings.Contains(out.String(), "No devices were found") {
		return nil, ErrNone
	}
	gpus, err := parseGPUs(out.String())
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

// parseGPUs reads one GPU from each line. The error names each invalid line.
func parseGPUs(text string) (gpus []GPU, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		g, ok := parseGPULine(line)
		if !ok {
			err = errors.Join(err, fmt.Errorf("nvidia-smi: no GPU in the line %q", firstLine(line)))
			continue
		}
		gpus = append(gpus, g)
	}
	return gpus, err
}

func parseGPULine(line string) (GPU, bool) {
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
	// For an unknown value nvidia-smi prints text in brackets: [N/A], [Not Supported].
	figure := func(field int, unit float64) float64 {
		if v, err := strconv.ParseFloat(fields[field], 64); err == nil {
			return v * unit
		}
		return unknown
	}
	return GPU{
		Index: index, UUID: fields[1], Name: fields[queried-1],
		MemoryTotal: int64(figure(2, 1<<20)), MemoryUsed: int64(figure(3, 1<<20)),
		Utilisation: figure(4, 0.01), Power: figure(5, 1), Temperature: figure(6, 1),
	}, true
}

// firstLine returns the first line of a text, cut to the length of a message.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return textfmt.Shorten(line, 200)
}
