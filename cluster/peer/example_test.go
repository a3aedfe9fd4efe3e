package peer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill/cluster/peer"
	"github.com/rowmill/rowmill/cluster/peer/peerv1"
	"github.com/rowmill/rowmill/cluster/peer/peerv1/peerv1connect"
)

// idle is a node that downloads nothing and answers only this question.
type idle struct {
	peerv1connect.UnimplementedNodeServiceHandler
}

func (idle) IsDownloading(_ context.Context, r *peerv1.IsDownloadingRequest) (*peerv1.IsDownloadingResponse, error) {
	if r.GetJob() == "" {
		return nil, &peer.Refusal{Code: peer.CodeInvalid, Message: "which job?"}
	}
	return &peerv1.IsDownloadingResponse{}, nil
}

// One node sends a request to another. A refusal means that the node is alive and has
// done nothing.
func Example() {
	ctx := context.Background()
	server, err := peer.Listen(peer.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close(ctx) }()
	server.SetHandler(idle{})
	client, err := peer.NewClient(peer.Config{Node: "gpu-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	there := client.Node(server.Addr().String())
	said, err := there.IsDownloading(ctx, &peerv1.IsDownloadingRequest{Job: "job-1"})
	fmt.Println(said.GetRunning(), err)

	_, err = there.IsDownloading(ctx, &peerv1.IsDownloadingRequest{})
	var refusal *peer.Refusal
	fmt.Println(errors.As(err, &refusal), refusal)
	// Output:
	// false <nil>
	// true invalid: which job?
}
