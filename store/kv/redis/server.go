package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	driver "github.com/redis/go-redis/v9"
)

// minMajor and minMinor are the oldest supported version. Older versions cannot read a
// range of names in both directions, or do not let a script write after it has read the
// clock.
const minMajor, minMinor = 6, 2

// A serverInfo holds the information that a Redis server reports about itself.
type serverInfo struct {
	info   map[string]string // fields of the answer to INFO
	config map[string]string // settings from CONFIG GET; nil if the server forbids CONFIG GET
	denied error             // error of CONFIG GET; explains why config is nil
}

// settings are the settings that readServerInfo reads. Servers before Redis 7 accept one
// name per CONFIG GET.
var settings = []string{"appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write"}

// readServerInfo reads the server's information and settings.
func (e *Backend) readServerInfo(ctx context.Context) (serverInfo, error) {
	found := serverInfo{info: map[string]string{}, config: map[string]string{}}
	text, err := ask(ctx, e, func(ctx context.Context) (string, error) { return e.client.Info(ctx).Result() })
	if err != nil {
		return found, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, isField := strings.Cut(strings.TrimSpace(line), ":"); isField {
			found.info[name] = value
		}
	}
	for _, name := range settings {
		values, err := ask(ctx, e, func(ctx context.Context) (map[string]string, error) { return e.client.ConfigGet(ctx, name).Result() })
		var refused driver.Error
		switch {
		case errors.As(err, &refused): // CONFIG GET is forbidden, or renamed
			found.config, found.denied = nil, err
			return found, nil
		case err != nil:
			return found, err
		}
		found.config[name] = values[name]
	}
	return found, nil
}

// checkUsable returns the reason why the server cannot hold records, or nil. sentinels says that a
// Sentinel may make a replica the primary.
func (v serverInfo) checkUsable(sentinels, allowLostWrites bool) error {
	switch {
	case sentinels && !allowLostWrites && v.config["min-replicas-to-write"] == "0":
		return errors.New("the server has min-replicas-to-write 0, so a primary that a partition has cut off takes writes that a failover loses: " +
			"set min-replicas-to-write 1, with two replicas or more, or set store.allow_lost_writes to accept this")
	case v.info["cluster_enabled"] == "1" || v.info["redis_mode"] == "cluster":
		return errors.New("the server runs in Redis Cluster mode, which cannot write several keys in one step: " +
			"use a primary without cluster mode, with Sentinels for failover")
	case v.info["role"] != "master":
		return fmt.Errorf("the server's role is %q: let the URL name the primary, or the Sentinels that know it", v.info["role"])
	case v.isTooOld():
		return fmt.Errorf("the server's version is %s: version %d.%d is the oldest that works", v.info["redis_version"], minMajor, minMinor)
	case v.canEvict():
		return fmt.Errorf("the server's maxmemory-policy is %s, which deletes records when memory is short: set it to noeviction", v.info["maxmemory_policy"])
	}
	return nil
}

func (v serverInfo) isTooOld() bool {
	major, rest, _ := strings.Cut(v.info["redis_version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, bad := strconv.Atoi(minor)
	return err == nil && bad == nil && (a < minMajor || a == minMajor && b < minMinor)
}

func (v serverInfo) canEvict() bool {
	policy := v.info["maxmemory_policy"]
	return policy != "" && policy != "noeviction"
}

// ListDurabilityRisks returns one sentence for each way in which the server's settings can lose
// acknowledged writes, or the reason why the settings cannot be read. It returns
// nothing when no loss is possible.
func (e *Backend) ListDurabilityRisks(ctx context.Context) ([]string, error) {
	found, err := e.readServerInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the Redis server's settings: %w", err)
	}
	return found.describeLosses(e.sentinels), nil
}

// describeLosses returns one sentence for each way in which the server can lose acknowledged
// writes. sentinels means that a Sentinel may make a replica the primary.
func (v serverInfo) describeLosses(sentinels bool) []string {
	var lost []string
	say := func(format string, args ...any) { lost = append(lost, fmt.Sprintf(format, args...)) }
	if v.info["aof_enabled"] == "0" {
		say("Redis keeps no append-only file: a crash loses everything since the last snapshot, which may be all. Set appendonly yes and appendfsync always.")
	} else {
		switch fsync := v.config["appendfsync"]; fsync {
		case "always":
		case "everysec":
			say("Redis syncs its append-only file once a second: a crash loses up to two seconds of acknowledged writes. Set appendfsync always.")
		case "":
			say("Redis does not say when it syncs its append-only file (%v): unless appendfsync is always, a crash loses acknowledged writes. Allow CONFIG GET to see it here.", v.denied)
		default:
			say("Redis leaves the syncing of its append-only file to the system (appendfsync %s): a crash of its machine loses the acknowledged writes of about half a minute. Set appendfsync always.", fsync)
		}
		if v.config["no-appendfsync-on-rewrite"] == "yes" {
			say("Redis does not sync while it rewrites its append-only file: a crash of its machine at that time loses acknowledged writes. Set no-appendfsync-on-rewrite no.")
		}
		if v.info["aof_last_write_status"] == "err" {
			say("Redis could not write its append-only file the last time it tried: check for a full or failing disk.")
		}
	}
	if v.canEvict() {
		say("Redis deletes records when memory is short (maxmemory-policy %s). Set maxmemory-policy noeviction.", v.info["maxmemory_policy"])
	}
	if replicas := v.info["connected_slaves"]; sentinels || replicas != "" && replicas != "0" {
		text := "Redis acknowledges writes before its replicas have them (%s connected): a failover loses what the new primary had not received"
		if n := v.config["min-replicas-to-write"]; n != "" && n != "0" {
			say(text+", which min-replicas-to-write %s bounds to about min-replicas-max-lag.", replicas, n)
		} else {
			say(text+", without a bound. Set min-replicas-to-write 1 to bound it, or have no failover.", replicas)
		}
	}
	return lost
}
