package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/rowmill/rowmill/cluster"
)

// Two members on one machine. Changed signals that the state of the other has arrived.
func Example() {
	ctx, first := context.Background(), freeAddress()
	quiet := slog.New(slog.DiscardHandler)
	mill, err := cluster.Open(ctx, cluster.Config{
		Node: "mill", Bind: first, Peer: "127.0.0.1:7957", API: "http://127.0.0.1:8088", Owns: true, Protocol: 1, Logger: quiet,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mill.Close()
	gpu, err := cluster.Open(ctx, cluster.Config{
		Node: "gpu", Bind: "127.0.0.1:0", Peer: "127.0.0.1:7967", API: "http://127.0.0.1:8089", Engines: true, Protocol: 1, Logger: quiet,
		Join: []string{first},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer gpu.Close()
	if err := gpu.SetState([]byte(`{"models": ["llama-3.1-8b"]}`)); err != nil {
		fmt.Println(err)
		return
	}
	for heard := false; !heard; {
		<-mill.Changed()
		for _, m := range mill.Members() {
			if !m.Self && m.State != nil {
				fmt.Printf("%s says %s\n", m.Node, m.State)
				heard = true
			}
		}
	}
	// Output:
	// gpu says {"models": ["llama-3.1-8b"]}
}

// freeAddress returns a free loopback address.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
