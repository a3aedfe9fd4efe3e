package settings

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestClusterSettings(t *testing.T) {
	t.Parallel()
	const redis = "store: {url: 'redis://10.0.0.5/0'}\n"
	const both = redis + "objects: {url: 's3://mill'}\n"
	const gossipKey = "MDEyMzQ1Njc4OTAxMjM0NQ=="
	for _, test := range []struct {
		name, file string
		want       []string // texts in the error; none if the settings are valid
	}{
		{name: "one node on Redis and S3", file: both},
		{name: "one node on S3", file: "objects: {url: 's3://mill/a/b', endpoint: 'http://10.0.0.5:7070', access_key: a, secret_key: b}"},
		{name: "a shared directory", file: redis + "objects: {shared: true}"},
		{name: "a cluster", file: both + "cluster: {insecure: true, listen: '10.0.0.7:7946', join: ['10.0.0.6:7946']}"},
		{name: "Sentinel", file: "store: {url: 'redis+sentinel://u:p@a:1,b:2/mill/0'}\nobjects: {shared: true}"},
		{name: "all addresses, one advertised", file: both + "cluster: {insecure: true, listen: ':7946', advertise: '10.0.0.7:7946'}"},
		{name: "a GPU node", file: both + "cluster: {insecure: true, listen: '10.0.0.7:7946', role: engines}"},
		{name: "a cluster with keys", file: both + "cluster: {listen: '10.0.0.7:7946', key: " + gossipKey + ", tls_cert: a.pem, tls_key: b.pem, tls_ca: c.pem}"},
		{name: "a cluster on one machine", file: both + "cluster: {listen: '127.0.0.1:7946'}"},
		{
			name: "a cluster open to strangers", file: both + "cluster: {listen: '10.0.0.7:7946'}",
			want: []string{
				"cluster.insecure: is false, and the gossip on 10.0.0.7:7946 is not encrypted", "set cluster.key, or set cluster.insecure to true",
				"requests of other nodes on 10.0.0.7:7947 are neither encrypted nor authenticated", "set cluster.tls_cert, cluster.tls_key and cluster.tls_ca, or set cluster.insecure to true",
			},
		},
		{
			name: "a key and no certificates", file: both + "cluster: {listen: ':7946', advertise: '10.0.0.7:7946', key: " + gossipKey + "}",
			want: []string{"cluster.insecure: is false, and requests of other nodes on :7947"},
		},
		{
			name: "embedded store", file: "cluster: {listen: '10.0.0.7:7946'}",
			want: []string{"cluster.listen: needs a store that all nodes share: set store.url"},
		},
		{
			name: "join without a cluster", file: "cluster: {join: ['10.0.0.6:7946']}",
			want: []string{"cluster.join: needs cluster.listen"},
		},
		{
			name: "directory of one node", file: redis,
			want: []string{"objects.url: records in Redis are for several nodes", "objects.shared"},
		},
		{
			name: "all addresses", file: both + "cluster: {listen: '0.0.0.0:7946'}",
			want: []string{"cluster.advertise: must be the address", "0.0.0.0:7946", "cluster.peer_advertise: must be", "0.0.0.0:7947"},
		},
		{
			name: "advertise all addresses", file: both + "cluster: {listen: ':7946', advertise: '[::]:7946'}",
			want: []string{"cluster.advertise: must be the address", "[::]:7946"},
		},
		{
			name: "half of TLS", file: both + "cluster: {listen: '10.0.0.7:7946', tls_cert: a.pem, tls_key: b.pem}",
			want: []string{"cluster.tls_cert: goes with cluster.tls_key and cluster.tls_ca"},
		},
		{
			name: "half a cluster alone", file: both + "cluster: {role: engines}",
			want: []string{"cluster.role: is engines: a node that does only this part of the work needs other nodes"},
		},
		{
			name: "engines of a node without any", file: both + "engines: ['http://a']\ncluster: {listen: '10.0.0.7:7946', role: api}",
			want: []string{"cluster.role: is api, and such a node runs no rows: remove the engines"},
		},
		{
			name: "no role", file: both + "cluster: {role: boss}",
			want: []string{`cluster.role: must be both, api or engines, is "boss"`},
		},
		{
			name: "addresses", file: both + "cluster: {listen: '7946', join: ['10.0.0.6', ':7946'], join_dns: mill}",
			want: []string{`cluster.listen: must be HOST:PORT, is "7946"`, `cluster.join[0]: must be HOST:PORT`, "cluster.join[1]", "cluster.join_dns: must be HOST:PORT"},
		},
		{name: "Sentinels with a password and TLS", file: "store: {url: 'rediss+sentinel://a:1,b:2/mill/0', sentinel_user: u, sentinel_password: p, tls_ca: ca.pem}\nobjects: {shared: true}"},
		{
			name: "Sentinel's password without Sentinels", file: "store: {url: 'rediss://a:1/0', sentinel_user: u, sentinel_password: p}\nobjects: {shared: true}",
			want: []string{"store.sentinel_user: is for Sentinels: it needs a store.url", "store.sentinel_password: is for Sentinels"},
		},
		{
			name: "Sentinel's user alone", file: "store: {url: 'redis+sentinel://a:1/mill/0', sentinel_user: u}\nobjects: {shared: true}",
			want: []string{"store.sentinel_user: needs store.sentinel_password"},
		},
		{
			name: "authorities without TLS", file: "store: {url: 'redis://a:1/0', tls_ca: ca.pem}\nobjects: {shared: true}",
			want: []string{"store.tls_ca: is for TLS: it needs a store.url that begins with rediss://"},
		},
		{
			name: "half a key", file: "objects: {url: 's3://mill', access_key: a}",
			want: []string{"objects.access_key: must be set together with objects.secret_key"},
		},
		{
			name: "S3 settings without S3", file: "objects: {endpoint: 'http://a', access_key: a, secret_key: b}",
			want: []string{"objects.endpoint: is for objects in S3; name the bucket", "objects.access_key: is for objects in S3"},
		},
		{
			name: "no bucket", file: "objects: {url: 's3:///prefix', endpoint: 'a:7070'}",
			want: []string{"objects.url: must be s3://BUCKET", "objects.endpoint: must be an http or https URL"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, test.file, nil)
			if err != nil && len(test.want) == 0 {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
		})
	}
}

func TestPeerAddressFollowsTheGossips(t *testing.T) {
	t.Parallel()
	for cluster, want := range map[string]string{
		"":                         "",
		"listen: '10.0.0.7:7946'":  "10.0.0.7:7947",
		"listen: '[fd00::7]:7946'": "[fd00::7]:7947",
		"listen: '127.0.0.1:0'":    "127.0.0.1:0",
		"listen: '10.0.0.7:7946', peer_listen: '10.1.0.7:80'": "10.1.0.7:80",
	} {
		s, err := load(t, "store: {url: 'redis://a'}\nobjects: {url: 's3://mill'}\ncluster: {insecure: true, "+cluster+"}", nil)
		if err != nil || s.Cluster.PeerListen != want {
			t.Errorf("%s: %q, error %v; want %q", cluster, s.Cluster.PeerListen, err, want)
		}
	}
}

func TestGossipKeys(t *testing.T) {
	t.Parallel()
	key := func(n int, b byte) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(b)), n)))
	}
	for text, want := range map[string]int{
		"": 0, key(16, 'a'): 1, key(32, 'a') + "," + key(24, 'b'): 2, key(32, 'a') + "\n" + key(32, 'b') + "\n": 2,
	} {
		keys, err := Cluster{Key: Secret(text)}.GossipKeys()
		if err != nil || len(keys) != want || want > 0 && keys[0][0] != 'a' {
			t.Errorf("%q: %q, error %v", text, keys, err)
		}
	}
	for _, text := range []string{" ", "hush-hush", key(15, 'x'), key(16, 'a') + " " + key(17, 'x')} {
		_, err := Cluster{Key: Secret(text)}.GossipKeys()
		if err == nil || !strings.Contains(err.Error(), "openssl rand") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// Passwords may be part of an address.
func TestStoreURLStaysSecret(t *testing.T) {
	t.Parallel()
	for text, place := range map[string]string{
		"":                                       "embedded",
		"redis://a:6379/0":                       "redis://a:6379/0",
		"redis://u:hush@a:6379/3?x=1":            "redis://a:6379/3",
		"redis://:hu/sh?hush@a:1/2":              "redis://a:1/2",
		"rediss://:hu@sh@a":                      "rediss://a",
		"redis+sentinel://u:hush@a:1,b:2/mill/0": "redis+sentinel://a:1,b:2/mill/0",
	} {
		if got := (RecordStore{URL: Secret(text)}).Location(); got != place {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
	_, err := load(t, "", []string{"ROWMILL_STORE_URL=http://u:hush@a"})
	if err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "store.url") {
		t.Error(err)
	}
	s, err := load(t, "objects: {shared: true}\nstore: {url_env: REDIS}", []string{"REDIS=redis://u:hush@a"})
	var printed strings.Builder
	if err != nil || s.Print(&printed) != nil || strings.Contains(printed.String(), "hush") || !strings.Contains(printed.String(), "url: (redacted)") {
		t.Errorf("error %v\n%s", err, printed.String())
	}
}

func TestExposure(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cluster Cluster
		want    string // the settings that the text must name
	}{
		{Cluster{}, ""},
		{Cluster{Listen: "127.0.0.1:7946", PeerListen: "localhost:7947"}, ""},
		{Cluster{Listen: "10.0.0.7:7946", PeerListen: "10.0.0.7:7947"}, "cluster.key cluster.tls_cert"},
		{Cluster{Listen: ":7946", PeerListen: "[::1]:7947"}, "cluster.key"},
		{Cluster{Listen: "10.0.0.7:7946", PeerListen: "10.0.0.7:7947", Key: "k", TLSCert: "c.pem"}, ""},
	} {
		said := strings.Join(test.cluster.ExposureWarnings(), " ")
		for _, setting := range []string{"cluster.key", "cluster.tls_cert"} {
			if strings.Contains(said, setting) != strings.Contains(test.want, setting) {
				t.Errorf("%+v: %s", test.cluster, said)
			}
		}
	}
}

func TestExposureOfRecords(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"":                            "",
		"redis://127.0.0.1:6379/0":    "",
		"redis://localhost":           "",
		"redis://[::1]:6379":          "",
		"redis://:hush@10.0.0.4:6379": "",
		"redis://u:hu@sh@10.0.0.4":    "",
		"redis+sentinel://:hush@10.0.0.4:26379,10.0.0.5:26379/mill/0": "",
		"redis://10.0.0.4:6379/0":                                     "10.0.0.4:6379",
		"redis://u@redis/0?x=1":                                       "redis",
		"rediss://:@10.0.0.4:6379/0":                                  "10.0.0.4:6379",
		"redis+sentinel://127.0.0.1:26379,10.0.0.5:26379/mill":        "127.0.0.1:26379,10.0.0.5:26379",
	} {
		said := RecordStore{URL: Secret(url)}.ExposureWarnings()
		switch {
		case want == "" && len(said) > 0:
			t.Errorf("%s: %q", url, said)
		case want != "" && (len(said) != 1 || !strings.Contains(said[0], "Redis at "+want+" asks for no password")):
			t.Errorf("%s: %q, want one about %s", url, said, want)
		}
	}
}

func TestBucketOfURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"s3://mill": {"mill", ""}, "s3://mill/": {"mill", ""}, "s3://mill/a/b/": {"mill", "a/b"},
	} {
		name, prefix := ObjectStorage{URL: text}.Bucket()
		if got := [2]string{name, prefix}; got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	for o, want := range map[ObjectStorage]string{
		{}: "https://s3.amazonaws.com", {Region: "eu-west-1"}: "https://s3.eu-west-1.amazonaws.com", {Region: "eu-west-1", Endpoint: "http://a:1"}: "http://a:1",
	} {
		if got := o.ServiceURL(); got != want {
			t.Errorf("%+v: %s", o, got)
		}
	}
}
