package peer_test

import (
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/internal/must"
)

// contract is the file that defines the requests between nodes.
const contract = "rowmill/peer/v1/node.proto"

// TestCodeIsGenerated checks that the generated code matches the contract.
func TestCodeIsGenerated(t *testing.T) {
	t.Parallel()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"proto"}})}
	files := must.Get(compiler.Compile(t.Context(), contract))(t)
	source, generated := protodesc.ToFileDescriptorProto(files[0]), protodesc.ToFileDescriptorProto(peerv1.File_rowmill_peer_v1_node_proto)
	if diff := cmp.Diff(source, generated, protocmp.Transform()); diff != "" {
		t.Errorf("make contract (-source +generated):\n%s", diff)
	}
}
