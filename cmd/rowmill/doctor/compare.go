package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowmill/rowmill/client"
)

// compareNodes returns a finding for each setting or fact that differs between nodes and
// should be equal.
func compareNodes(nodes []client.Diagnosis) []client.Finding {
	var found []client.Finding
	say := func(check, level, text, remedy string) {
		found = append(found, client.Finding{Check: check, Level: level, Text: text, Remedy: remedy})
	}
	said := map[string]map[string][]string{} // name → value → names of nodes
	note := func(what, value, node string) {
		if said[what] == nil {
			said[what] = map[string][]string{}
		}
		said[what][value] = append(said[what][value], node)
	}
	for _, n := range nodes {
		if n.Facts == nil {
			say("node "+n.Name, Fail, "does not answer other nodes: "+n.Error, "look whether its process runs, and whether its cluster.peer_listen can be reached from the others at the address that it advertises")
			continue
		}
		note("version", n.Facts.Version, n.Name)
		note("deployment", n.Facts.Deployment, n.Name)
		note("catalog", n.Facts.Catalog, n.Name)
		note("members", strings.Join(slices.Sorted(slices.Values(n.Facts.Members)), ", "), n.Name)
		for name, value := range n.Facts.Settings {
			note("setting "+name, value, n.Name)
		}
	}
	advice := differenceAdvice()
	for _, what := range slices.Sorted(maps.Keys(said)) {
		values := said[what]
		if len(values) < 2 {
			continue
		}
		var sides []string
		for _, value := range slices.Sorted(maps.Keys(values)) {
			sides = append(sides, fmt.Sprintf("%s: %s", strings.Join(values[value], ", "), value))
		}
		check, level, remedy := what, Warn, ""
		if a, known := advice[what]; known {
			level, remedy = a[0], a[1]
		} else {
			check, remedy = "settings", "give all nodes the same value and restart them: a job gets the value of the node that owns it"
		}
		say(check, level, "nodes differ in "+what+": "+strings.Join(sides, "; "), remedy)
	}
	return found
}

// differenceAdvice returns how serious a difference between nodes is, and its
// remedy. The key is the name of the setting or fact; the value is the level and the
// remedy.
func differenceAdvice() map[string][2]string {
	advice := map[string][2]string{
		"version":    {Warn, "finish the upgrade: drain, replace and start the nodes one after the other"},
		"deployment": {Fail, "give all nodes the same store.url, store.prefix and objects.url"},
		"catalog":    {Fail, "give all nodes the same catalog file, and restart them"},
		"members":    {Fail, "open the ports of cluster.listen (TCP and UDP) between all nodes, and look whether all have the same cluster.key and cluster.label"},
	}
	advice["setting tracing.sample"] = [2]string{Warn, "give all nodes the same tracing.sample and tracing.endpoint, and restart them: each node decides for itself which jobs it traces"}
	for _, secret := range []string{"api_key", "http.signing_key", "cluster.key", "log.audit_webhook_secret", "cluster.tls_ca"} {
		advice["setting "+secret] = [2]string{Warn, "give all nodes the same secrets in the same order: finish the change that was begun (docs/security.md), and take each step on all nodes before the next step"}
	}
	return advice
}
