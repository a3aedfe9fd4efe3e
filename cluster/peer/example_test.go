package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rowmill/rowmill/cluster/peer"
)

// One node asks another. A refusal says that it is alive and has done nothing.
func Example() {
	ctx := context.Background()
	server, err := peer.Listen(peer.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close(ctx) }()
	server.Serve(func(_ context.Context, e peer.Envelope) (any, error) {
		if e.Kind != "double" {
			return nil, &peer.Refusal{Code: peer.CodeUnknownKind, Message: e.Kind + " means nothing here"}
		}
		var n int
		err := json.Unmarshal(e.Body, &n)
		return 2 * n, err
	})
	client, err := peer.NewClient(peer.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	var reply int
	err = client.Ask(ctx, server.Addr().String(), peer.Envelope{From: "gpu-1", Kind: "double", Body: json.RawMessage("21")}, &reply)
	fmt.Println(reply, err)

	err = client.Ask(ctx, server.Addr().String(), peer.Envelope{From: "gpu-1", Kind: "halve"}, nil)
	var refusal *peer.Refusal
	fmt.Println(errors.As(err, &refusal), refusal)
	// Output:
	// 42 <nil>
	// true unknown_kind: halve means nothing here
}
