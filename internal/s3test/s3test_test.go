package s3test

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// TestRestart kills a server and finds bucket and address again.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := Start(t)
	client, err := minio.New(s.address(), &minio.Options{
		Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: Region, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if there, err := client.BucketExists(t.Context(), s.Bucket); err != nil || !there {
		t.Fatalf("the bucket: %v, %v", there, err)
	}
	s.Kill()
	if _, err := client.BucketExists(t.Context(), s.Bucket); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed server answers %v, want a refused connection", err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if there, err := client.BucketExists(t.Context(), s.Bucket); err != nil || !there {
		t.Errorf("after a restart the bucket: %v, %v", there, err)
	}
}

// TestReserve checks both halves of a reservation: nobody gets the port by
// chance, and who names it can listen.
//
// It does not run beside tests that start processes: between fork and exec a
// child has the sockets that are closed here.
func TestReserve(t *testing.T) {
	r, err := reserve("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.release()
	// A socket that may have any port as long as it is this one.
	only := func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			const ipLocalPortRange = 51 // since Linux 6.3
			err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, ipLocalPortRange, r.port|r.port<<16)
		}), err)
	}
	listener, err := (&net.ListenConfig{Control: only}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	switch {
	case errors.Is(err, syscall.ENOPROTOOPT):
		t.Skip("this kernel cannot ask for a free port of a range")
	case err == nil:
		_ = listener.Close()
		t.Error("the reserved port is handed out to a listener")
	}
	for range 2 { // as a server and its restart
		named, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)))
		if err != nil {
			t.Fatalf("listen on the reserved port: %v", err)
		}
		_ = named.Close()
	}
	r.release()
	if listener, err = (&net.ListenConfig{Control: only}).Listen(t.Context(), "tcp4", "127.0.0.1:0"); err != nil {
		t.Fatalf("a port that was given back: %v", err)
	}
	_ = listener.Close()
}
