package gpu

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Monitor keeps the last reading of a Source, takes a new one at most every
// few seconds and when somebody looks, and collects it as metrics. All methods
// are safe for concurrent use.
type Monitor struct {
	source Source

	mu      sync.Mutex
	reading chan struct{} // closed at the end of the reading under way; nil without one
	taken   time.Time     // the end of the last one
	gpus    []GPU
	err     error
}

const (
	// maxAge is how old a reading may be before another is taken.
	maxAge = 5 * time.Second
	// patience is how long a look waits for a reading: a scraper gives up
	// after 10 s, an orchestrator's probe earlier.
	patience = 2 * time.Second
)

// NewMonitor makes a Monitor; nothing is read before somebody looks.
func NewMonitor(source Source) *Monitor { return &Monitor{source: source} }

// Read returns the GPUs as they were a few seconds ago. Where a new reading
// takes longer than 2 s, or than ctx allows, it returns the one before.
func (m *Monitor) Read(ctx context.Context) ([]GPU, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m.mu.Lock()
	if m.reading == nil && (m.taken.IsZero() || time.Since(m.taken) >= maxAge) {
		m.reading = make(chan struct{})
		go m.read()
	}
	reading := m.reading
	m.mu.Unlock()
	if reading != nil {
		select {
		case <-reading:
		case <-ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taken.IsZero() {
		return nil, ctx.Err()
	}
	return m.gpus, m.err
}

// read takes a reading. It runs apart from who looks: a program that waits for
// a broken driver cannot be killed. The source bounds it where that is possible.
func (m *Monitor) read() {
	gpus, err := m.source.Read(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus, m.err, m.taken = gpus, err, time.Now()
	close(m.reading)
	m.reading = nil
}

var (
	infoDesc        = prometheus.NewDesc("rowmill_gpu_info", "1 for each NVIDIA GPU of the machine.", []string{"index", "name", "uuid"}, nil)
	memoryDesc      = prometheus.NewDesc("rowmill_gpu_memory_bytes", "Memory of a GPU: in use, and in total.", []string{"index", "kind"}, nil)
	utilisationDesc = prometheus.NewDesc("rowmill_gpu_utilization_ratio", "Share of the last moments in which a GPU was busy, 0 to 1.", []string{"index"}, nil)
	powerDesc       = prometheus.NewDesc("rowmill_gpu_power_watts", "What a GPU draws.", []string{"index"}, nil)
	temperatureDesc = prometheus.NewDesc("rowmill_gpu_temperature_celsius", "How hot a GPU is.", []string{"index"}, nil)
)

// Describe sends the metrics there are.
func (m *Monitor) Describe(to chan<- *prometheus.Desc) {
	to <- infoDesc
	to <- memoryDesc
	to <- utilisationDesc
	to <- powerDesc
	to <- temperatureDesc
}

// Collect sends the last reading's figures; what the driver does not tell is
// left out.
func (m *Monitor) Collect(to chan<- prometheus.Metric) {
	gpus, _ := m.Read(context.Background()) // what could not be read is not there
	for _, g := range gpus {
		index := strconv.Itoa(g.Index)
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			if value != unknown {
				to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{index}, labels...)...)
			}
		}
		gauge(infoDesc, 1, g.Name, g.UUID)
		gauge(memoryDesc, float64(g.MemoryTotal), "total")
		gauge(memoryDesc, float64(g.MemoryUsed), "used")
		gauge(utilisationDesc, g.Utilisation)
		gauge(powerDesc, g.Power)
		gauge(temperatureDesc, g.Temperature)
	}
}
