package settings

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// RecordStore configures where the records are stored.
type RecordStore struct {
	// URL is the address of a Redis server that all nodes share:
	// redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for TLS, or
	// redis+sentinel://[USER:PASSWORD@]HOST:PORT,HOST:PORT/NAME/DB. It is a secret,
	// because it may hold a password. Default: empty, the embedded store in the data
	// directory, for one node.
	URL Secret `yaml:"url"`

	// SentinelUser and SentinelPassword authenticate the node at the Sentinels. The
	// user and the password in URL are for the Redis servers. Default: none.
	SentinelUser     string `yaml:"sentinel_user"`
	SentinelPassword Secret `yaml:"sentinel_password"`

	// AllowLostWrites permits Redis behind Sentinels with min-replicas-to-write 0.
	// After a network partition, a failover of such a Redis may lose all writes since
	// the partition began. Default: false.
	AllowLostWrites bool `yaml:"allow_lost_writes"`

	// TLSCA is a PEM file of the certificate authorities that may sign the certificate
	// of a Redis server, for URLs with rediss. Default: empty, which means the
	// authorities of the system.
	TLSCA string `yaml:"tls_ca"`

	// Prefix is the beginning of the name of every key in Redis. Default: rowmill:, so
	// that other programs may use the same database. Two services in one database need
	// different prefixes.
	Prefix string `yaml:"prefix" default:"rowmill:"`
}

// IsEmbedded reports whether records are in the data directory.
func (s RecordStore) IsEmbedded() bool { return s.URL == "" }

// ExposureWarnings returns a sentence for each problem that lets a stranger with network access
// read and change the records; none if there is no problem.
func (s RecordStore) ExposureWarnings() []string {
	_, rest, _ := strings.Cut(s.URL.Reveal(), "://")
	user, hosts := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, hosts = rest[:at], rest[at+1:]
	}
	hosts, _, _ = strings.Cut(hosts, "/")
	hosts, _, _ = strings.Cut(hosts, "?")
	if _, password, _ := strings.Cut(user, ":"); password != "" || s.IsEmbedded() {
		return nil
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if !isLoopbackHost(host) {
			return []string{fmt.Sprintf("Redis at %s asks for no password: any host that reaches it can read every key, job and result; "+
				"set requirepass there, and store.url to redis://:PASSWORD@HOST:PORT/DB", hosts)}
		}
	}
	return nil
}

// ObjectStorage configures where inputs, parts and results are stored.
type ObjectStorage struct {
	// URL is s3://BUCKET/PREFIX for a bucket that all nodes share. Default: empty,
	// which means the folder "objects" in the data directory.
	URL string `yaml:"url"`

	// Endpoint is the S3 service's URL, such as http://127.0.0.1:7070. Default: empty,
	// the AWS service in Region.
	Endpoint string `yaml:"endpoint"`

	// PublicEndpoint is the base of signed URLs, if clients reach the S3 service at
	// another address than the nodes. Default: empty, which means Endpoint.
	PublicEndpoint string `yaml:"public_endpoint"`

	// Region is the region of the bucket. Default: empty, which means the region that
	// Endpoint names or that the S3 service reports.
	Region string `yaml:"region"`

	// AccessKey and SecretKey sign requests to S3; set both or neither. Default: none.
	// Then the node uses the AWS_ variables, the web identity of a pod, or the role of
	// the machine.
	AccessKey Secret `yaml:"access_key"`
	SecretKey Secret `yaml:"secret_key"`

	// Shared says that all nodes use the same data directory, for example by NFS, so
	// that objects need no S3. Default: false, because with separate directories each
	// node would miss the results of the other nodes.
	Shared bool `yaml:"shared"`
}

// Bucket returns the name of the bucket in URL, and the prefix of the object keys
// without slashes at its ends.
func (o ObjectStorage) Bucket() (name, prefix string) {
	name, prefix, _ = strings.Cut(strings.TrimPrefix(o.URL, s3Scheme), "/")
	return name, strings.Trim(prefix, "/")
}

// ServiceURL returns the URL of the S3 service.
func (o ObjectStorage) ServiceURL() string {
	switch {
	case o.Endpoint != "":
		return o.Endpoint
	case o.Region != "":
		return "https://s3." + o.Region + ".amazonaws.com"
	}
	return "https://s3.amazonaws.com"
}

const s3Scheme = "s3://"

// A Role says which work a node does in its cluster.
type Role string

// The roles of a node in its cluster.
const (
	Both        Role = "both"
	APIOnly     Role = "api"     // the node runs no rows itself
	EnginesOnly Role = "engines" // the node runs rows of other nodes' jobs; it owns no jobs and accepts none from clients
)

// Cluster configures how the node finds the other nodes and communicates with them.
type Cluster struct {
	// Node is the node's name for people; several nodes may have the same name.
	// Default: empty, which means the name of the host.
	Node string `yaml:"node"`

	// Role is both, api or engines. Default: both.
	Role Role `yaml:"role" default:"both"`

	// Listen is the address of the membership gossip, HOST:PORT, by TCP and by
	// UDP. Default: empty, no cluster.
	Listen string `yaml:"listen"`

	// Advertise is the address at which other nodes reach Listen. Default: empty, which
	// means Listen.
	Advertise string `yaml:"advertise"`

	// Join lists gossip addresses of other nodes, HOST:PORT. To join the cluster, it is
	// enough that one of them answers. Default: none.
	Join []string `yaml:"join"`

	// JoinDNS is a DNS name with a port, for example of a headless Service in
	// Kubernetes. Other nodes are at the addresses of this name, which the node
	// resolves repeatedly. Default: none.
	JoinDNS string `yaml:"join_dns"`

	// JoinFile is a file with the gossip address of another node on each line,
	// HOST:PORT. The node reads it repeatedly. Default: none.
	JoinFile string `yaml:"join_file"`

	// Key encrypts the gossip: 16, 24 or 32 bytes in base64. With several keys,
	// separated by commas or white space, every key decrypts and the first key
	// encrypts, so that a key can be changed node by node. Default: none. Then the
	// gossip is not encrypted and any host that reaches the node may join, so this is
	// allowed only on loopback, or with Insecure.
	Key Secret `yaml:"key"`

	// Label separates clusters on the same network: a node ignores nodes with another
	// label. Default: rowmill.
	Label string `yaml:"label" default:"rowmill"`

	// PeerListen is the address for requests between nodes, HOST:PORT. Default: empty,
	// the host of Listen and its port plus one.
	PeerListen string `yaml:"peer_listen"`

	// PeerAdvertise is the address at which other nodes reach PeerListen. Default:
	// empty, which means PeerListen, but with the host of Advertise if PeerListen
	// listens on all addresses.
	PeerAdvertise string `yaml:"peer_advertise"`

	// TLSCert, TLSKey and TLSCA are PEM files for mutual TLS between nodes: set all or
	// none. The node reads the files again when they change. Default: none, which means
	// plain HTTP. Then any host that reaches PeerListen can give the node commands, so
	// this is allowed only on loopback, or with Insecure.
	TLSCert string `yaml:"tls_cert"`
	TLSKey  string `yaml:"tls_key"`
	TLSCA   string `yaml:"tls_ca"`

	// Insecure permits gossip without a key and requests between nodes without
	// certificates, on addresses that other machines reach. Default: false. Set it to
	// true only on a network that no other machine reaches.
	Insecure bool `yaml:"insecure"`
}

// Enabled reports whether the node is part of a cluster.
func (c Cluster) Enabled() bool { return c.Listen != "" }

// GossipKeys returns the keys of the gossip. The first key encrypts. Without keys the gossip
// is not encrypted.
func (c Cluster) GossipKeys() ([][]byte, error) {
	return decodeKeys(c.Key, "16, 24 or 32 bytes in base64", func(field string) ([]byte, bool) {
		key, err := base64.StdEncoding.DecodeString(field)
		return key, err == nil && slices.Contains([]int{16, 24, 32}, len(key))
	})
}

// decodeKeys decodes each key of a list. Its errors do not contain the error of decode,
// which would show a part of the key. form describes a valid key.
func decodeKeys(list Secret, validForm string, decode func(field string) (key []byte, ok bool)) ([][]byte, error) {
	var keys [][]byte
	fields := splitKeys(list)
	for i, field := range fields {
		key, ok := decode(field)
		if !ok {
			return nil, fmt.Errorf("key %d of %d must be %s; `openssl rand -base64 32` makes one", i+1, len(fields), validForm)
		}
		keys = append(keys, key)
	}
	if list != "" && len(keys) == 0 {
		return nil, errors.New("holds no key; `openssl rand -base64 32` makes one")
	}
	return keys, nil
}

// splitKeys splits a list of keys at commas and white space.
func splitKeys(list Secret) []string {
	return strings.FieldsFunc(list.Reveal(), func(r rune) bool { return strings.ContainsRune(", \t\n\r", r) })
}

// ExposureWarnings returns a sentence for each problem that lets a stranger with network access
// take part in the cluster; none if there is no problem.
func (c Cluster) ExposureWarnings() []string {
	var out []string
	if c.Enabled() && !IsLoopback(c.Listen) && c.Key == "" {
		out = append(out, fmt.Sprintf("the gossip on %s is not encrypted: any host that reaches it can join the cluster; set cluster.key", c.Listen))
	}
	if c.Enabled() && !IsLoopback(c.PeerListen) && c.TLSCert == "" {
		out = append(out, fmt.Sprintf("requests of other nodes on %s are neither encrypted nor authenticated: any host that reaches it can take rows and drain the node; "+
			"set cluster.tls_cert, cluster.tls_key and cluster.tls_ca", c.PeerListen))
	}
	return out
}

// fillDefaults sets PeerListen, if it is empty, from Listen.
func (c *Cluster) fillDefaults() {
	if c.PeerListen != "" || c.Listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(c.Listen)
	n, numErr := strconv.Atoi(port)
	if err != nil || numErr != nil {
		return // Validate reports the invalid address
	}
	if n > 0 { // port 0 means any free port, also for PeerListen
		n++
	}
	c.PeerListen = net.JoinHostPort(host, strconv.Itoa(n))
}

// IsUnspecified reports whether the host of an address, HOST:PORT, means all addresses
// of the machine, such as 0.0.0.0. Other machines cannot connect to such a host.
func IsUnspecified(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// IsLoopback reports whether an address, HOST:PORT, can be reached only from this
// machine.
func IsLoopback(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil && isLoopbackHost(address)
}

// isLoopbackHost is like IsLoopback, for an address with or without a port.
func isLoopbackHost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A namedValue is the name and the value of a setting.
type namedValue struct{ key, value string }

// checkStorage checks the settings of records and objects against each other.
func (s Settings) checkStorage(check requireFunc) {
	scheme, rest, _ := strings.Cut(s.Store.URL.Reveal(), "://")
	known := slices.Contains([]string{"redis", "rediss", "redis+sentinel", "rediss+sentinel"}, scheme) && rest != ""
	check(s.Store.IsEmbedded() || known, "store.url", // the message must not show the URL, which may hold a password
		"must begin with redis://, rediss://, redis+sentinel:// or rediss+sentinel:// and name a host, or be empty for the embedded store")
	sentinel, secure := strings.HasSuffix(scheme, "+sentinel"), strings.HasPrefix(scheme, "rediss")
	check(sentinel || s.Store.SentinelUser == "", "store.sentinel_user", "is for Sentinels: it needs a store.url that begins with redis+sentinel:// or rediss+sentinel://")
	check(sentinel || s.Store.SentinelPassword == "", "store.sentinel_password", "is for Sentinels: it needs a store.url that begins with redis+sentinel:// or rediss+sentinel://")
	check(s.Store.SentinelUser == "" || s.Store.SentinelPassword != "", "store.sentinel_user", "needs store.sentinel_password too")
	check(secure || s.Store.TLSCA == "", "store.tls_ca", "is for TLS: it needs a store.url that begins with rediss:// or rediss+sentinel://")
	check(s.Store.Prefix != "", "store.prefix", "must not be empty; choose one such as rowmill:")

	o := s.Objects
	bucket, _ := o.Bucket()
	inS3 := o.URL != ""
	check(!inS3 || strings.HasPrefix(o.URL, s3Scheme) && bucket != "", "objects.url",
		"must be s3://BUCKET or s3://BUCKET/PREFIX, or empty for the data directory, is %q", o.URL)
	for _, endpoint := range []namedValue{{"objects.endpoint", o.Endpoint}, {"objects.public_endpoint", o.PublicEndpoint}} {
		check(endpoint.value == "" || isBaseURL(endpoint.value), endpoint.key, "must be an http or https URL without query, is %q", endpoint.value)
		check(endpoint.value == "" || inS3, endpoint.key, "is for objects in S3; name the bucket with objects.url, such as s3://rowmill")
	}
	check((o.AccessKey == "") == (o.SecretKey == ""), "objects.access_key", "must be set together with objects.secret_key: set both or neither")
	check(o.AccessKey == "" || inS3, "objects.access_key", "is for objects in S3; name the bucket with objects.url, such as s3://rowmill")
	check(s.Store.IsEmbedded() || inS3 || o.Shared, "objects.url",
		"records in Redis are for several nodes, and their objects must be where all reach them: "+
			"name a bucket, such as s3://rowmill, or set objects.shared where all nodes see one data directory")
}

// checkCluster checks the settings of the cluster against each other and against other
// settings.
func (s Settings) checkCluster(check requireFunc) {
	c := s.Cluster
	check(slices.Contains([]Role{Both, APIOnly, EnginesOnly}, c.Role), "cluster.role", "must be both, api or engines, is %q", c.Role)
	_, err := c.GossipKeys()
	check(err == nil, "cluster.key", "%v", err)
	if !c.Enabled() {
		const remedy = "needs cluster.listen, the HOST:PORT at which other nodes reach this one, such as 10.0.0.7:7946"
		check(len(c.Join) == 0, "cluster.join", remedy)
		check(c.JoinDNS == "", "cluster.join_dns", remedy)
		check(c.JoinFile == "", "cluster.join_file", remedy)
		check(c.PeerListen == "", "cluster.peer_listen", remedy)
		check(c.Role == Both, "cluster.role", "is %s: a node that does only this part of the work needs other nodes for the rest; set cluster.listen and cluster.join", c.Role)
		return
	}
	check(!s.Store.IsEmbedded(), "cluster.listen", "needs a store that all nodes share: set store.url to a Redis server, such as redis://10.0.0.5:6379/0")
	check(c.Role != APIOnly || len(s.Engines)+len(s.Servers) == 0 && s.Simulator.Enabled != Always, "cluster.role",
		"is api, and such a node runs no rows: remove the engines (--engine, --run, --simulate), or make the role both")
	for _, address := range []namedValue{
		{"cluster.listen", c.Listen},
		{"cluster.peer_listen", c.PeerListen},
		{"cluster.join_dns", c.JoinDNS},
		{"cluster.advertise", c.Advertise},
		{"cluster.peer_advertise", c.PeerAdvertise},
	} {
		check(address.value == "" || isHostPort(address.value), address.key, "must be HOST:PORT, is %q", address.value)
	}
	for _, own := range []struct{ key, listen, advertised string }{
		{"cluster.advertise", c.Listen, c.Advertise},
		{"cluster.peer_advertise", c.PeerListen, cmp.Or(c.PeerAdvertise, c.Advertise)},
	} {
		check(!IsUnspecified(cmp.Or(own.advertised, own.listen)), own.key,
			"must be the address by which other nodes reach this one, such as 10.0.0.7:7946: %s means all addresses of the machine", cmp.Or(own.advertised, own.listen))
	}
	for i, address := range c.Join {
		check(isHostPort(address) && !IsUnspecified(address), fmt.Sprintf("cluster.join[%d]", i), "must be HOST:PORT, such as 10.0.0.6:7946, is %q", address)
	}
	for _, reason := range c.ExposureWarnings() {
		check(c.Insecure, "cluster.insecure", "is false, and %s, or set cluster.insecure to true if only the nodes reach it", reason)
	}
	files := slices.DeleteFunc([]string{c.TLSCert, c.TLSKey, c.TLSCA}, func(name string) bool { return name == "" })
	check(len(files) == 0 || len(files) == 3, "cluster.tls_cert",
		"goes with cluster.tls_key and cluster.tls_ca: set all three, or none")
}

// stripUserInfo returns a URL without the user, the password and the query, for people to
// read.
func stripUserInfo(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return ""
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:] // a password may contain @
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest
}

// Location returns where the records are: "embedded", or the URL of Redis without the user
// and the password.
func (s RecordStore) Location() string {
	if s.IsEmbedded() {
		return "embedded"
	}
	return stripUserInfo(s.URL.Reveal())
}
