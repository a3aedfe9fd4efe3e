package peer

import (
	"strings"
	"unicode"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// unknown is the value of the label kind for requests that this node does not know. A
// label must not contain text from a request.
const unknown = "unknown"

// requestKinds returns, for the path of each procedure, the name of its requests in metrics
// and logs: run_compaction for /…/RunCompaction.
func requestKinds() map[string]string {
	all := make(map[string]string)
	methods := peerv1.File_rowmill_peer_v1_node_proto.Services().ByName("NodeService").Methods()
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		var kind strings.Builder
		for at, c := range name {
			if unicode.IsUpper(c) && at > 0 {
				kind.WriteByte('_')
			}
			kind.WriteRune(unicode.ToLower(c))
		}
		all[procedure(name)] = kind.String()
	}
	return all
}

// procedure returns the URL path of a method of the node service.
func procedure(method string) string {
	return "/" + peerv1connect.NodeServiceName + "/" + method
}
