package doctor

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
)

// Levels of a finding, from harmless to serious.
const (
	OK   = "ok"
	Warn = "warn"
	Fail = "fail"
)

// expiresSoon is how long before the end of a certificate the doctor begins to warn. It
// is long enough to get a new certificate.
const expiresSoon = 14 * 24 * time.Hour

// CheckSettings returns problems in valid settings, such as an API that is open to the
// network.
func CheckSettings(set settings.Settings, now time.Time) []client.Finding {
	var found []client.Finding
	say := func(check, level, text, remedy string) {
		found = append(found, client.Finding{Check: check, Level: level, Text: text, Remedy: remedy})
	}
	for _, open := range set.Store.ExposureWarnings() {
		say("records", Fail, open, "set requirepass in redis.conf and the password in store.url")
	}
	for _, open := range set.Cluster.ExposureWarnings() { // such a node starts only with cluster.insecure
		say("cluster", Warn, open, "set cluster.key, cluster.tls_cert, cluster.tls_key and cluster.tls_ca, and remove cluster.insecure")
	}
	if c := set.Cluster; c.Enabled() {
		for name, pair := range map[string][2]string{"cluster.advertise": {c.Listen, c.Advertise}, "cluster.peer_advertise": {c.PeerListen, c.PeerAdvertise}} {
			if pair[1] != "" && settings.IsLoopback(pair[1]) && !settings.IsLoopback(pair[0]) {
				say("cluster", Fail, fmt.Sprintf("%s is %s: other machines cannot reach this node at that address", name, pair[1]), "set "+name+" to an address of this machine that the others reach")
			}
		}
	}
	http := set.HTTP
	if !settings.IsLoopback(http.Listen) {
		if http.TLSCert == "" {
			say("api", Warn, "http.listen "+http.Listen+" uses plain HTTP: anyone on the network path can read keys and results", "set http.tls_cert and http.tls_key, or let a proxy on the same machine do TLS and listen on 127.0.0.1")
		}
		if http.AdminListen == "" {
			say("metrics", Warn, "/metrics is open to every client that reaches the API", "set http.admin_listen to a loopback address, or to an address that only Prometheus reaches")
		}
	}
	if http.AdminListen != "" && !settings.IsLoopback(http.AdminListen) {
		say("admin", Fail, "http.admin_listen "+http.AdminListen+" opens pprof and metrics to the network, without a key", "listen on 127.0.0.1, or close the port to all but Prometheus")
	}
	if set.Retention.OrphanAge < set.Inputs.TotalTimeout {
		say("retention", Warn, fmt.Sprintf("retention.orphan_age is %v, less than inputs.total_timeout, %v: objects that are still being stored may be removed as leftovers", set.Retention.OrphanAge, set.Inputs.TotalTimeout), "set retention.orphan_age to 24h")
	}
	if set.ClockOffset != 0 {
		say("clock", Fail, fmt.Sprintf("clock_offset is %v: times in records are wrong by this much", set.ClockOffset), "remove clock_offset; it is only for tests")
	}
	found = append(found, CheckCertificates(set, now)...)
	slices.SortStableFunc(found, func(a, b client.Finding) int {
		return cmp.Or(strings.Compare(a.Check, b.Check), strings.Compare(a.Text, b.Text))
	})
	return found
}

// CheckCertificates returns a finding for each certificate that has expired, expires soon,
// or cannot be read.
func CheckCertificates(set settings.Settings, now time.Time) (found []client.Finding) {
	files := CertificateFiles(set)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		finding := client.Finding{Check: "certificate", Level: Fail, Remedy: "put a new certificate and key in the place of " + file + "; the files are read again by themselves"}
		cert, err := ReadCertificate(file)
		switch {
		case err != nil:
			finding.Text = fmt.Sprintf("%s cannot be read: %v", name, err)
		case now.After(cert.NotAfter):
			finding.Text = fmt.Sprintf("%s has not been valid since %s", name, cert.NotAfter.UTC().Format(time.RFC3339))
		case now.Add(expiresSoon).After(cert.NotAfter):
			finding.Level, finding.Text = Warn, fmt.Sprintf("%s is valid only until %s", name, cert.NotAfter.UTC().Format(time.RFC3339))
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

// CertificateFiles returns the file names of the node's certificates. The key is the
// name of the setting.
func CertificateFiles(set settings.Settings) map[string]string {
	files := map[string]string{"http.tls_cert": set.HTTP.TLSCert, "cluster.tls_cert": set.Cluster.TLSCert}
	maps.DeleteFunc(files, func(_, file string) bool { return file == "" })
	return files
}

// ReadCertificate reads the first certificate of a PEM file.
func ReadCertificate(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the file has no PEM block")
	}
	return x509.ParseCertificate(block.Bytes)
}

// SharedSettings returns the settings that must be equal on all nodes of a deployment, as text.
// The key is the name of the setting.
func SharedSettings(set settings.Settings) map[string]string {
	out := make(map[string]string)
	for name, value := range map[string]any{"jobs": set.Jobs, "retention": set.Retention, "inputs": set.Inputs, "estimates": set.Estimates, "oidc": set.OIDC, "quotas": set.Quotas} {
		text, err := yaml.Marshal(value)
		if err != nil {
			continue // does not happen: Settings.Print writes the same values as YAML
		}
		var fields map[string]any
		if yaml.Unmarshal(text, &fields) != nil {
			out[name] = strings.TrimSpace(string(text))
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			out[name+"."+field] = fmt.Sprint(fields[field])
		}
	}
	out["tracing.sample"] = fmt.Sprint(set.Tracing.Sample)
	if set.Tracing.Endpoint == "" {
		out["tracing.sample"] = "nothing is traced"
	}
	return out
}
