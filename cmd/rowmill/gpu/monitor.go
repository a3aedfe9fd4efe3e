package gpu

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Monitor caches the last reading of a Source and exports it as metrics. It takes a
// new reading only when a caller asks, and at most every few seconds. All methods are
// safe for concurrent use.
type Monitor struct {
	source Source

	mu      sync.Mutex
	reading chan struct{} // closed when the reading in progress ends; nil if none is in progress
	taken   time.Time     // end of the last reading
	gpus    []GPU
	err     error
}

const (
	// maxAge is the age at which Read replaces a reading by a new one.
	maxAge = 5 * time.Second
	// patience is how long Read waits for a new reading. Scrapers of metrics give up
	// after 10 s, health probes of orchestrators earlier.
	patience = 2 * time.Second
)

// NewMonitor returns a Monitor of source. It takes no reading yet.
func NewMonitor(source Source) *Monitor { return &Monitor{source: source} }

// Read returns the GPUs with their state of a few seconds ago. If a new reading takes
// longer than 2 s, or longer than ctx allows, Read returns the reading before.
func (m *Monitor) Read(ctx context.Context) ([]GPU, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m.mu.Lock()
	if m.reading == nil && (m.taken.IsZero() || time.Since(m.taken) >= maxAge) {
		m.reading = make(chan struct{})
		go m.refresh()
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

// refresh takes a new reading from the source. It runs in its own goroutine: if the driver
// is broken, nvidia-smi may hang and cannot be killed. The source limits the time of a
// reading if it can.
func (m *Monitor) refresh() {
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
	powerDesc       = prometheus.NewDesc("rowmill_gpu_power_watts", "Power of a GPU, in watts.", []string{"index"}, nil)
	temperatureDesc = prometheus.NewDesc("rowmill_gpu_temperature_celsius", "Temperature of a GPU, in degrees Celsius.", []string{"index"}, nil)
)

// Describe sends the descriptions of the metrics.
func (m *Monitor) Describe(to chan<- *prometheus.Desc) {
	to <- infoDesc
	to <- memoryDesc
	to <- utilisationDesc
	to <- powerDesc
	to <- temperatureDesc
}

// Collect sends the values of the last reading, without the unknown values.
func (m *Monitor) Collect(to chan<- prometheus.Metric) {
	gpus, _ := m.Read(context.Background()) // GPUs that could not be read have no metrics
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
