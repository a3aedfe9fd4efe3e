package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/rowmill/rowmill/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// install puts a script named nvidia-smi onto an otherwise empty PATH; none if the text
// is empty. The script gets the arguments of the real program.
func install(t *testing.T, script string) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	if script == "" {
		return
	}
	text := "#!/bin/sh\n" +
		`[ "$1 $2" = "` + query + ` --format=csv,noheader,nounits" ] || { echo "Invalid combination of input arguments: $*"; exit 1; }` + "\n" + script
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "nvidia-smi"), []byte(text), 0o700))
}

func TestSMI(t *testing.T) {
	h200 := GPU{
		Index: 0, Name: "NVIDIA H200", UUID: "GPU-5a1f9c1e-7b1e-0b0c-6d4e-1f0c2d3e4f50",
		MemoryTotal: 143771 << 20, MemoryUsed: 127114 << 20, Utilisation: 0.97, Power: 612.5, Temperature: 71,
	}
	const h200Line = "0, GPU-5a1f9c1e-7b1e-0b0c-6d4e-1f0c2d3e4f50, 143771, 127114, 97, 612.50, 71, NVIDIA H200"
	for _, test := range []struct {
		name   string
		script string
		want   []GPU
		is     error
		says   string
	}{
		{name: "not installed", is: ErrNone},
		{name: "one", script: "echo '" + h200Line + "'", want: []GPU{h200}},
		{
			name:   "two, one with a comma in its name",
			script: "echo '" + h200Line + "'\necho '1, GPU-b2, 81559, 0, 0, 58.1, 33, NVIDIA A100-SXM4-80GB, rev 2'",
			want:   []GPU{h200, {Index: 1, Name: "NVIDIA A100-SXM4-80GB, rev 2", UUID: "GPU-b2", MemoryTotal: 81559 << 20, Power: 58.1, Temperature: 33}},
		},
		{
			name:   "MIG: nobody knows how busy the whole is",
			script: "echo '0, GPU-c3, 81920, 21203, [N/A], 300.00, 60, NVIDIA H100 80GB HBM3'",
			want:   []GPU{{Index: 0, Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-c3", MemoryTotal: 81920 << 20, MemoryUsed: 21203 << 20, Utilisation: -1, Power: 300, Temperature: 60}},
		},
		{
			name:   "memory shared with the CPU",
			script: "echo '0, GPU-d4, [N/A], [N/A], 3, 4.6, 40, NVIDIA GB10'",
			want:   []GPU{{Index: 0, Name: "NVIDIA GB10", UUID: "GPU-d4", MemoryTotal: -1, MemoryUsed: -1, Utilisation: 0.03, Power: 4.6, Temperature: 40}},
		},
		{
			name:   "an old card in a container",
			script: "echo '0, GPU-e5, 11441, [Insufficient Permissions], [Not Supported], [N/A], [N/A], Tesla K80'",
			want:   []GPU{{Index: 0, Name: "Tesla K80", UUID: "GPU-e5", MemoryTotal: 11441 << 20, MemoryUsed: -1, Utilisation: -1, Power: -1, Temperature: -1}},
		},
		{name: "a driver without a GPU", script: "echo 'No devices were found'; exit 6", is: ErrNone},
		{name: "says nothing", script: "exit 0", is: ErrNone},
		{
			name:   "no driver",
			script: "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.'\necho\nexit 9",
			says:   "could not communicate with the NVIDIA driver",
		},
		{
			name:   "driver and library differ",
			script: "echo 'Failed to initialize NVML: Driver/library version mismatch'\necho 'NVML library version: 550.90'\nexit 18",
			says:   "Driver/library version mismatch",
		},
		{
			name:   "one of two fell off the bus",
			script: "echo '" + h200Line + "'\necho 'Unable to determine the device handle for GPU1: 0000:41:00.0: Unknown Error'\nexit 15",
			want:   []GPU{h200}, says: "exit status 15",
		},
		{name: "another program", script: "echo hello", says: `"hello"`},
		{name: "hangs", script: "exec /bin/sleep 60", is: context.DeadlineExceeded, says: "no answer within 300ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			install(t, test.script)
			timeout := 30 * time.Second
			if test.is == context.DeadlineExceeded { //nolint:errorlint // the table names this error
				timeout = 300 * time.Millisecond
			}
			got, err := NvidiaSMI{Timeout: timeout}.Read(t.Context())
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v, want %v", err, test.is)
			}
			if test.says == "" && test.is == nil && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("error %v, want %q", err, test.says)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	install(t, `echo '0, GPU-a, 1024, 512, 25, 70.5, 55, NVIDIA "L4"'; echo '1, GPU-b, 2048, 0, [N/A], [N/A], [N/A], NVIDIA L40S'`)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewMonitor(NvidiaSMI{}))
	want := `
# HELP rowmill_gpu_info 1 for each NVIDIA GPU of the machine.
# TYPE rowmill_gpu_info gauge
rowmill_gpu_info{index="0",name="NVIDIA \"L4\"",uuid="GPU-a"} 1
rowmill_gpu_info{index="1",name="NVIDIA L40S",uuid="GPU-b"} 1
# HELP rowmill_gpu_memory_bytes Memory of a GPU: in use, and in total.
# TYPE rowmill_gpu_memory_bytes gauge
rowmill_gpu_memory_bytes{index="0",kind="total"} 1.073741824e+09
rowmill_gpu_memory_bytes{index="0",kind="used"} 5.36870912e+08
rowmill_gpu_memory_bytes{index="1",kind="total"} 2.147483648e+09
rowmill_gpu_memory_bytes{index="1",kind="used"} 0
# HELP rowmill_gpu_power_watts Power of a GPU, in watts.
# TYPE rowmill_gpu_power_watts gauge
rowmill_gpu_power_watts{index="0"} 70.5
# HELP rowmill_gpu_temperature_celsius Temperature of a GPU, in degrees Celsius.
# TYPE rowmill_gpu_temperature_celsius gauge
rowmill_gpu_temperature_celsius{index="0"} 55
# HELP rowmill_gpu_utilization_ratio Share of the last moments in which a GPU was busy, 0 to 1.
# TYPE rowmill_gpu_utilization_ratio gauge
rowmill_gpu_utilization_ratio{index="0"} 0.25
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestMachineWithoutGPUHasNoMetrics(t *testing.T) {
	install(t, "")
	if n := testutil.CollectAndCount(NewMonitor(NvidiaSMI{})); n != 0 {
		t.Errorf("%d metrics of no GPU", n)
	}
}

// A slow source answers each Read after a pause, with a GPU; its index is the number of
// the read.
type slow struct {
	pause atomic.Int64 // ns
	reads atomic.Int64
}

func newSlow(pause time.Duration) *slow {
	s := &slow{}
	s.pause.Store(int64(pause))
	return s
}

func (s *slow) Read(context.Context) ([]GPU, error) {
	n := int(s.reads.Add(1))
	time.Sleep(time.Duration(s.pause.Load()))
	return []GPU{{Index: n}}, nil
}

func TestMonitorReadsSeldomAndNeverWaitsLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newSlow(time.Second)
		m := NewMonitor(source)
		for _, step := range []struct {
			after  time.Duration // since the last Read
			pause  time.Duration // of the source from now on
			waited time.Duration
			index  int // of the GPU that Read returns
		}{
			{0, time.Second, time.Second, 1},
			{4 * time.Second, time.Second, 0, 1},                // young enough
			{time.Second, time.Second, time.Second, 2},          // 5 s old
			{5 * time.Second, time.Minute, 2 * time.Second, 2},  // too slow: the old one
			{10 * time.Second, time.Minute, 2 * time.Second, 2}, // still the same
			{50 * time.Second, time.Second, 0, 3},
		} {
			time.Sleep(step.after)
			source.pause.Store(int64(step.pause))
			began := time.Now()
			gpus, err := m.Read(t.Context())
			if err != nil || len(gpus) != 1 || gpus[0].Index != step.index || time.Since(began) != step.waited {
				t.Errorf("%+v: %v, error %v, after %v", step, gpus, err, time.Since(began))
			}
		}
		if n := source.reads.Load(); n != 3 {
			t.Errorf("%d readings", n)
		}
	})
}

func TestMonitorWithoutAnyReadingYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor(newSlow(time.Minute))
		if gpus, err := m.Read(t.Context()); gpus != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(gpus, err)
		}
		time.Sleep(time.Minute) // the read ends
	})
}

func TestFirstLineIsShort(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"short\nsecond", strings.Repeat("x", 300), strings.Repeat("ß", 300)} {
		if got := firstLine(text); len(got) > 203 || strings.Contains(got, "\n") || fmt.Sprintf("%q", got) != `"`+got+`"` {
			t.Errorf("%q", got)
		}
	}
}
