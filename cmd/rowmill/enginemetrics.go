package main

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/actors"
)

// engineCollector exports metrics that describe each engine. The pipeline exports the
// metrics of its performance. Only /readyz?verbose shows why an engine is down: as a
// label, each error text would make a new series.
type engineCollector struct {
	engines func() []actors.EngineStatus
	host    func(name string) string
}

var (
	engineInfoDesc  = prometheus.NewDesc("rowmill_engine_info", "1 for each engine, labelled with the last description of its server.", []string{"engine", "host", "kind", "version", "simulated"}, nil)
	engineModelDesc = prometheus.NewDesc("rowmill_engine_model_info", "1 for each model that an engine serves, by the server's name for it.", []string{"engine", "model"}, nil)
	engineSinceDesc = prometheus.NewDesc("rowmill_engine_state_since_timestamp_seconds", "When an engine came up, or went down; rowmill_engine_up says which.", []string{"engine"}, nil)
	engineQueueDesc = prometheus.NewDesc("rowmill_engine_rows_queued", "Rows on this node that wait for room in the engine's window.", []string{"engine"}, nil)
)

// Describe sends the descriptions of the metrics.
func (m engineCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{engineInfoDesc, engineModelDesc, engineSinceDesc, engineQueueDesc} {
		to <- d
	}
}

// Collect sends the metrics of all engines.
func (m engineCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, e := range m.engines() {
		gauge(engineInfoDesc, 1, e.Name, m.host(e.Name), e.Info.Kind, e.Info.Version, strconv.FormatBool(e.Info.Simulated))
		gauge(engineSinceDesc, float64(e.Since.UnixMilli())/1000, e.Name)
		_, _, queued := e.Load()
		gauge(engineQueueDesc, float64(queued), e.Name)
		if !e.Up {
			continue
		}
		sent := map[string]bool{} // a server may list a model twice
		for _, model := range e.Info.Models {
			if !sent[model.Name] {
				sent[model.Name] = true
				gauge(engineModelDesc, 1, e.Name, model.Name)
			}
		}
	}
}
