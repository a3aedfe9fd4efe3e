package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rowmill/rowmill/cmd/rowmill/doctor"
)

// certificateInterval is the time between two checks of the node's certificates.
const certificateInterval = 24 * time.Hour

// certificateMonitor is the part of a node that warns before the node's certificates expire:
// in the log, and with a metric for an alert. Once a certificate has expired,
// service.Checks makes the node not ready.
type certificateMonitor struct{ partBase }

// Start registers the metric and starts the checks of the certificates.
func (c *certificateMonitor) Start(ctx context.Context) error {
	set := c.Settings
	for setting, file := range doctor.CertificateFiles(set) {
		c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rowmill_certificate_end_timestamp_seconds", Help: "End of the certificate of a setting, in seconds since 1970; 0 if its file cannot be read.",
			ConstLabels: prometheus.Labels{"setting": setting},
		}, func() float64 {
			cert, err := doctor.ReadCertificate(file)
			if err != nil {
				return 0
			}
			return float64(cert.NotAfter.Unix())
		}))
	}
	c.runInBackground(ctx, "the watch of certificates", func(ctx context.Context) {
		ticks := time.NewTicker(certificateInterval)
		defer ticks.Stop()
		for {
			for _, f := range doctor.CheckCertificates(set, c.now()) {
				c.Logger.Warn("a certificate needs to be replaced", "why", f.Text, "remedy", f.Remedy)
			}
			select {
			case <-ticks.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}
