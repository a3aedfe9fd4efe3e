package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"time"

	"github.com/rowmill/rowmill/actors"
	"github.com/rowmill/rowmill/actors/nodes"
	"github.com/rowmill/rowmill/actors/registry"
	"github.com/rowmill/rowmill/blob"
	"github.com/rowmill/rowmill/blob/layout"
	"github.com/rowmill/rowmill/blob/s3"
	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/cmd/rowmill/doctor"
	"github.com/rowmill/rowmill/cmd/rowmill/settings"
	"github.com/rowmill/rowmill/engine"
	"github.com/rowmill/rowmill/engine/catalog"
	"github.com/rowmill/rowmill/http/exchange"
	apinodes "github.com/rowmill/rowmill/http/nodes"
	"github.com/rowmill/rowmill/store/deployment"
)

// CheckStorage compares the records with the objects in the bucket. If readResults is true,
// it also reads all results and parts of ended jobs.
func (s *nodeService) CheckStorage(ctx context.Context, readResults bool) (deployment.NodeReport, error) {
	return s.storage.checkConsistency(ctx, readResults, nil)
}

// Diagnose asks every node to check itself, and returns the reports of all nodes.
func (s *nodeService) Diagnose(ctx context.Context) ([]apinodes.Diagnosis, error) {
	replies, err := s.System.Facts(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]apinodes.Diagnosis, len(replies))
	for i, r := range replies {
		out[i] = apinodes.Diagnosis{ID: r.Node.ID, Name: r.Node.Name}
		facts := &client.Facts{}
		if r.Err == nil {
			r.Err = json.Unmarshal(r.Answer, facts)
		}
		if r.Err != nil {
			out[i].Error = exchange.NilIfZero(shortText(r.Err))
			continue
		}
		if facts.Settings == nil {
			facts.Settings = map[string]string{}
		}
		facts.Members, facts.Findings = exchange.OrEmptyList(facts.Members), exchange.OrEmptyList(facts.Findings)
		s := &facts.Storage
		s.CommitSeconds, s.SyncSeconds, s.PutSeconds, s.GetSeconds = exchange.OrEmptyList(s.CommitSeconds), exchange.OrEmptyList(s.SyncSeconds), exchange.OrEmptyList(s.PutSeconds), exchange.OrEmptyList(s.GetSeconds)
		out[i].Facts = facts
	}
	return out, nil
}

// A selfDiagnosis collects the results of the checks that a node makes of itself.
type selfDiagnosis struct {
	*nodeService
	found []client.Finding
	times client.StorageTimes

	written int64 // version of the record that measureCommitTimes writes; 0 before it is known
}

func (x *selfDiagnosis) addFinding(check, level, text, remedy string) {
	x.found = append(x.found, client.Finding{Check: check, Level: level, Text: text, Remedy: remedy})
}

// checkTimeout is the default of node.checkTimeout. Storage that works answers in
// milliseconds. Other nodes wait for a diagnosis for longer than its checks can take.
const checkTimeout = 2 * time.Second

// collectFacts makes all checks of this node, and returns the results as client.Facts.
func (s *nodeService) collectFacts(ctx context.Context) any {
	x := &selfDiagnosis{nodeService: s}
	for _, f := range doctor.CheckSettings(s.Settings, s.now()) {
		x.found = append(x.found, client.Finding(f))
	}
	x.checkSecrets()
	x.checkClockAndStorage()
	x.checkEngines()
	x.checkMachine()
	for _, try := range []func(context.Context){x.probeRecords, x.probeBucket, x.probePeers, x.checkServers} {
		ctx, cancel := context.WithTimeout(ctx, s.checkTimeout)
		try(ctx)
		cancel()
	}
	facts := client.Facts{
		Version: readBuildMetadata().Version, Deployment: s.storage.deployment.ID, Catalog: hashCatalog(s.engines.Catalog),
		Settings: doctor.SharedSettings(s.Settings), Findings: x.found, Storage: x.times,
	}
	maps.Copy(facts.Settings, s.secrets.secretFingerprints())
	for _, n := range s.System.Nodes() {
		facts.Members = append(facts.Members, n.ID)
	}
	return facts
}

// hashCatalog returns a hash of a catalog. If two nodes have different hashes, they have
// different catalogs.
func hashCatalog(c *catalog.Catalog) string {
	text, err := json.Marshal([]any{c.All(), c.Aliases()})
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// checkSecrets adds a finding if secrets or other settings have changed but are not in use.
func (x *selfDiagnosis) checkSecrets() {
	if trouble := x.secrets.currentProblem.Load(); trouble != nil {
		x.addFinding("secrets", doctor.Warn, *trouble, "correct the settings or files that the text names, or restart the node if the text says so; see docs/security.md")
	}
}

// maxClockError is the clock error above which a diagnosis reports a failure. It is well
// below retention.clock_tolerance.
const maxClockError = 30 * time.Second

func (x *selfDiagnosis) checkClockAndStorage() {
	status := x.StorageStatus()
	switch skew := status.Skew; {
	case skew.Abs() > maxClockError:
		x.addFinding("clock", doctor.Fail, fmt.Sprintf("it is %v ahead of the clock of the records", skew.Round(time.Second)), "synchronise the clock of the machine (NTP)")
	default:
		x.addFinding("clock", doctor.OK, "it agrees with the clock of the records", "")
	}
	if status.Held != nil {
		x.addFinding("retention", doctor.Fail, "no data is removed: "+shortText(status.Held), "see docs/operations.md, RowmillRetentionHeld")
	}
	if n := status.Findings.Damaged; n > 0 {
		x.addFinding("damage", doctor.Fail, fmt.Sprintf("%d records or objects cannot be read", n), "`rowmill storage check --read` lists them; restore them from a backup")
	}
	if n := status.Findings.Jobs; n > 0 {
		x.addFinding("bucket", doctor.Warn, fmt.Sprintf("it holds objects of %d jobs without a record", n), "`rowmill storage check` lists them; were records lost?")
	}
}

func (x *selfDiagnosis) probeRecords(ctx context.Context) {
	if err := x.storage.Store.Ping(ctx); err != nil {
		x.addFinding("records", doctor.Fail, "they cannot be written: "+shortText(err), "look at "+x.storage.recordsLocation())
		return
	}
	x.addFinding("records", doctor.OK, "they can be written at "+x.storage.recordsLocation(), "")
	x.measureCommitTimes(ctx)
	if x.storage.redis == nil {
		return
	}
	weak, err := x.storage.redis.ListDurabilityRisks(ctx)
	if err != nil {
		x.addFinding("records", doctor.Warn, "the settings of Redis cannot be read: "+shortText(err), "allow the user of store.url INFO and CONFIG GET")
	}
	for _, w := range weak {
		x.addFinding("records", doctor.Warn, w, "docs/cluster.md, section 1, has a redis.conf; CONFIG SET changes it while Redis runs")
	}
}

// probeBucket tries each operation on objects that a node needs, and adds a finding with
// the result.
func (x *selfDiagnosis) probeBucket(ctx context.Context) {
	at := " at " + x.storage.objectsLocation()
	key := layout.ProbeKey(x.nodeName() + "-doctor")
	steps := []struct{ what, action string }{{"written", "s3:PutObject"}, {"listed", "s3:ListBucket"}, {"deleted", "s3:DeleteObject"}}
	for i, try := range []func() error{
		func() error { return writeProbeObject(ctx, x.storage.Bucket, key, []byte("rowmill doctor was here")) },
		func() error { _, err := x.storage.Bucket.List(ctx, "probe/"); return err },
		func() error { x.measureObjectTimes(ctx, key); return x.storage.Bucket.Delete(ctx, key) },
	} {
		if err := try(); err != nil {
			remedy := "allow the user of the node to write to " + x.Settings.Data + ", and look whether the disk has room"
			if x.storage.folder == nil {
				remedy = "look whether the service answers, and allow the keys " + steps[i].action + " on the bucket"
			}
			x.addFinding("bucket", doctor.Fail, "objects cannot be "+steps[i].what+at+": "+shortText(err), remedy)
			return
		}
	}
	x.addFinding("bucket", doctor.OK, "objects can be written, listed and deleted"+at, "")
	if x.storage.s3 != nil {
		x.reportS3Limits(x.storage.s3.Limits())
	}
}

// reportS3Limits adds a finding for each call that the S3 service does not support: what nodes
// do instead, and the remedy.
func (x *selfDiagnosis) reportS3Limits(limits []s3.Limitation) {
	for _, l := range limits {
		level := doctor.OK
		if l.Remedy != "" {
			level = doctor.Warn
		}
		x.addFinding("bucket", level, "the S3 service "+l.String(), l.Remedy)
	}
}

func writeProbeObject(ctx context.Context, bucket blob.Bucket, key string, text []byte) error {
	w, err := bucket.Create(ctx, key, layout.Bytes)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(text); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}

func (x *selfDiagnosis) checkEngines() {
	if x.Settings.Cluster.Role == settings.APIOnly {
		return
	}
	all := x.Engines()
	switch startable := len(x.Settings.Servers); {
	case len(all) > 0:
	case startable > 0:
		x.addFinding("engines", doctor.OK, fmt.Sprintf("none runs now; the node starts %d servers for rows that wait", startable), "")
	default:
		x.addFinding("engines", doctor.Fail, "there is none", "start an inference server at "+strings.Join(x.Settings.Discover.Addresses, ", ")+", or name one in engines")
	}
	for _, e := range all {
		x.checkEngine(e)
	}
}

// checkServers adds a finding for each server of this node that ended by itself.
func (x *selfDiagnosis) checkServers(ctx context.Context) {
	all, err := x.ServerList(ctx)
	if err != nil { // probeRecords reports it
		return
	}
	self, _ := nodes.Find(x.System.Nodes(), "")
	for _, s := range all {
		if s.NodeID == self.ID && s.Error != nil {
			x.addFinding("server "+s.Name, doctor.Fail, "it ended: "+*s.Error, "read its output with `rowmill servers logs "+s.Node+"/"+s.Name+"`")
		}
	}
}

func (x *selfDiagnosis) checkEngine(e actors.EngineStatus) {
	check, at := "engine "+e.Name, " at "+x.engines.engineHost(e.Name)
	if !e.Up {
		remedy := "start it, or remove it from engines"
		var refused *engine.Error
		if errors.As(e.Err, &refused) && (refused.Status == 401 || refused.Status == 403) {
			remedy = "set its key as api_key of its entry in engines"
		}
		text := "it is down" + at
		if e.Err != nil {
			text += ": " + shortText(e.Err)
		}
		x.addFinding(check, doctor.Fail, text, remedy)
		return
	}
	if len(e.Info.Models) == 0 {
		x.addFinding(check, doctor.Warn, "it serves no model"+at, "load one there, such as with ollama pull, or start the server with one")
		return
	}
	if e.Info.Simulated && x.engines.Simulator != nil && x.Settings.Simulator.Enabled == settings.Auto {
		x.addFinding(check, doctor.Warn, "answers are simulated, because the node found no inference server at its start", "start an inference server and restart the node, or give --simulate to keep simulated answers")
		return
	}
	well := true
	warn := func(what, remedy string) {
		well = false
		x.addFinding(check, doctor.Warn, what, remedy)
	}
	for _, s := range e.Info.Models {
		if s.Unusable != "" {
			why, remedy := s.Unusable, ""
			if i := strings.LastIndex(why, "; "); i >= 0 {
				why, remedy = why[:i], why[i+len("; "):]
			}
			warn(fmt.Sprintf("it lists %s, which cannot be used: %s", s.Name, why), remedy)
		}
	}
	for _, why := range actors.DescribeResting(e.Resting) {
		warn(fmt.Sprintf("the server%s: %s", at, why), "look into the log of the server")
	}
	for _, model := range x.engines.Catalog.All() {
		if s, ok := e.Info.FindModel(model); ok && s.ContextLength > 0 && s.ContextLength < model.ContextLength {
			warn(fmt.Sprintf("it takes %d tokens for %s, the catalog says %d: longer rows are cut or refused", s.ContextLength, model.ID, model.ContextLength),
				"start the server with a longer context (--max-model-len, -c), or lower context_length in the catalog")
		}
	}
	if well {
		x.addFinding(check, doctor.OK, "it serves "+x.engines.formatModels(e.Info)+at, "")
	}
}

// probePeers sends a small request to every node, and adds a finding for each node that
// does not answer.
func (x *selfDiagnosis) probePeers(ctx context.Context) {
	if x.members.Cluster == nil {
		return
	}
	replies, err := x.System.Actors(ctx, "", registry.Filter{Kind: "none"})
	for _, r := range replies {
		if r.Err != nil {
			x.addFinding("peers", doctor.Fail, fmt.Sprintf("node %s cannot be asked at %s: %s", r.Node.Name, r.Node.Peer, shortText(r.Err)),
				"open that port between the nodes (cluster.peer_listen), set cluster.peer_advertise of "+r.Node.Name+" to an address that this one reaches, and give both certificates of the same CA")
		}
		err = cmp.Or(err, r.Err)
	}
	if err == nil {
		x.addFinding("peers", doctor.OK, fmt.Sprintf("all %d nodes answer", len(replies)), "")
	}
}

// If a machine has less than these values, a diagnosis warns the operator.
const (
	minOpenFiles     = 4096 // open at once, including the connections of clients, engines and storage
	minFreeDiskShare = 0.1  // free share of the disk
)

func (x *selfDiagnosis) checkMachine() {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && files.Cur < minOpenFiles {
		x.addFinding("files", doctor.Warn, fmt.Sprintf("the process may open %d files", files.Cur), "set LimitNOFILE=65536 in the unit of the service, or ulimit -n 65536 before it starts")
	}
	if x.storage.folder == nil && !x.Settings.Store.IsEmbedded() {
		return
	}
	var disk syscall.Statfs_t
	if syscall.Statfs(x.Settings.Data, &disk) == nil {
		if f := checkDiskSpace(x.Settings.Data, disk.Bavail*uint64(disk.Bsize), disk.Blocks*uint64(disk.Bsize)); f.Level != "" {
			x.found = append(x.found, f)
		}
	}
}

// checkDiskSpace returns a warning if the disk of path has too little free space,
// otherwise an empty Finding. freeBytes and capacityBytes are in bytes.
func checkDiskSpace(path string, freeBytes, capacityBytes uint64) client.Finding {
	if capacityBytes == 0 || float64(freeBytes)/float64(capacityBytes) >= minFreeDiskShare {
		return client.Finding{}
	}
	return client.Finding{
		Check: "disk", Level: doctor.Warn, Text: fmt.Sprintf("the disk of %s has %.1f GiB left, %d %%", path, float64(freeBytes)/float64(settings.GiB), 100*freeBytes/capacityBytes),
		Remedy: "make room, or shorten how long results are kept (rowmill settings set --retention-days)",
	}
}
