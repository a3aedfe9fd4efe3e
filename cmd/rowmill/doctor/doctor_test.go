package doctor

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/internal/certtest"
	"github.com/rowmill/rowmill/internal/must"
)

func loaded(t *testing.T) settings.Settings {
	t.Helper()
	set := must.Get(settings.Load(settings.Sources{Environ: []string{"HOME=" + t.TempDir()}}))(t)
	return set
}

// The settings of a node without a network are sound. Each bad setting is reported with
// its remedy.
func TestOfSettings(t *testing.T) {
	t.Parallel()
	if found := CheckSettings(loaded(t), time.Now()); len(found) != 0 {
		t.Errorf("the defaults: %+v", found)
	}
	authority := must.Get(certtest.NewAuthority())(t)
	files := must.Get(authority.Issue(t.TempDir(), "127.0.0.1"))(t)
	cert := must.Get(ReadCertificate(files.Cert))(t)
	for name, test := range map[string]struct {
		change func(*settings.Settings)
		now    time.Time
		level  string
		remedy []string // of all findings
	}{
		"Redis without a password": {func(s *settings.Settings) { s.Store.URL = "redis://10.0.0.4:6379/0" }, time.Time{}, Fail, []string{"requirepass"}},
		"open cluster": {func(s *settings.Settings) {
			s.Cluster.Listen, s.Cluster.PeerListen = "10.0.0.1:7946", "10.0.0.1:7947"
		}, time.Time{}, Warn, []string{"cluster.key", "cluster.tls_cert"}},
		"plain HTTP":     {func(s *settings.Settings) { s.HTTP.Listen = "0.0.0.0:8088" }, time.Time{}, Warn, []string{"http.tls_cert", "http.admin_listen"}},
		"open pprof":     {func(s *settings.Settings) { s.HTTP.AdminListen = "10.0.0.1:9090" }, time.Time{}, Fail, []string{"127.0.0.1"}},
		"expires":        {func(s *settings.Settings) { s.HTTP.TLSCert = files.Cert }, cert.NotAfter.Add(-time.Hour), Warn, []string{"new certificate"}},
		"expired":        {func(s *settings.Settings) { s.Cluster.TLSCert = files.Cert }, cert.NotAfter.Add(time.Hour), Fail, []string{"new certificate"}},
		"no certificate": {func(s *settings.Settings) { s.HTTP.TLSCert = filepath.Join("gone", "cert.pem") }, time.Time{}, Fail, []string{"new certificate"}},
		"valid":          {func(s *settings.Settings) { s.HTTP.TLSCert = files.Cert }, cert.NotAfter.Add(-30 * 24 * time.Hour), "", nil},
	} {
		set := loaded(t)
		test.change(&set)
		found := CheckSettings(set, test.now)
		if len(found) != len(test.remedy) {
			t.Errorf("%s: %+v", name, found)
			continue
		}
		for i, f := range found {
			if f.Level != test.level || !strings.Contains(f.Remedy, test.remedy[i]) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// Nodes that agree are not reported.
func TestCompare(t *testing.T) {
	t.Parallel()
	node := func(name string, members ...string) client.Diagnosis {
		return client.Diagnosis{ID: name, Name: name, Facts: &client.Facts{Members: members}}
	}
	if found := compareNodes([]client.Diagnosis{node("a", "a", "b"), node("b", "b", "a")}); len(found) != 0 {
		t.Errorf("%+v", found)
	}
	one, two := node("a", "a", "b"), node("b", "b")
	one.Facts.Version, two.Facts.Version = "v1", "v2"
	one.Facts.Deployment = "x"
	found := compareNodes([]client.Diagnosis{one, two, {Name: "c", Error: "no answer in time"}})
	want := map[string][2]string{"node c": {Fail, "peer_listen"}, "version": {Warn, "upgrade"}, "deployment": {Fail, "store.prefix"}, "members": {Fail, "UDP"}}
	for _, f := range found {
		if w := want[f.Check]; f.Level != w[0] || !strings.Contains(f.Remedy, w[1]) {
			t.Errorf("%+v", f)
		}
		delete(want, f.Check)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v among %+v", want, found)
	}
}

func TestWhatIsStuck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		actor client.Actor
		level string
		says  string
	}{
		{client.Actor{State: "running", OldestMessageSeconds: 2, Task: "load rows", TaskSeconds: 3}, OK, ""},
		{client.Actor{State: "running", OldestMessageSeconds: 90}, Fail, "a message has waited for 1m30s"},
		{client.Actor{State: "running", Task: "write a part", TaskSeconds: 900}, Warn, "its task \"write a part\" has run for 15m0s"},
		{client.Actor{State: "running", Task: "read the input", TaskSeconds: 9000}, OK, ""},
		{client.Actor{State: "running", Task: "wait for an engine", TaskSeconds: 90}, Warn, "no server of its model has been up for 1m30s"},
		{client.Actor{State: "panicked"}, Warn, "panicked"},
	} {
		text, level, remedy := diagnoseActor(test.actor)
		if level != test.level || !strings.Contains(text, test.says) || (remedy == "") != (level == OK) {
			t.Errorf("%+v: %s %q %q", test.actor, level, text, remedy)
		}
	}
}
