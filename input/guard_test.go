package input_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rowmill/rowmill/input"
)

// The services of a cloud for its machines must never be an input, whatever the
// settings and the spelling of the address. No connection is tried: each would
// time out or be refused.
func TestMetadataServicesAreNeverAnInput(t *testing.T) {
	t.Parallel()
	strict, _ := downloader(t, func(c *input.Config) { c.AllowLoopback = false })
	open, _ := downloader(t, func(c *input.Config) { c.AllowPrivateNetworks = true })
	for _, host := range []string{
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.254:8080", "100.100.100.200", "168.63.129.16",
		"168.63.129.16:32526", "192.0.0.192", "169.254.42.42", "169.254.0.23", "169.254.130.2:8081",
		"[fd00:ec2::254]", "[fd00:ec2::23]", "[fd20:ce::254]", "[fd00:c1::a9fe:a9fe]", "[fd00:42::42]", "[fd00:a9fe:a9fe::1]", "[fd00:100::100:200]",
		"[fe80::a9fe:a9fe%25lo]",
		"[::ffff:169.254.169.254]", "[::ffff:a83f:8110]", "[::169.254.170.2]", "[::ffff:0:100.100.100.200]", // mapped, compatible, SIIT
		"[64:ff9b::a9fe:a9fe]", "[64:ff9b::168.63.129.16]", "[64:ff9b:1::a9fe:a9fe]", "[64:ff9b:1:ff::6464:64c8]", // NAT64
		"[2002:a9fe:a9fe::1]", "[2002:a83f:8110::]", // 6to4
		"[2001:0:4136:e378:8000:63bf:5601:5601]", // Teredo
	} {
		for _, d := range []*input.Downloader{strict, open} {
			_, err := d.Fetch(t.Context(), "http://"+host+"/hidden?"+secret, io.Discard)
			wantFailure(t, err, "metadata service of a cloud", "no setting permits")
		}
	}
}

// The resolved address counts, not the name.
func TestMetadataServiceBehindAName(t *testing.T) {
	// Not parallel: the test replaces the process's resolver.
	was := net.DefaultResolver
	net.DefaultResolver = resolver(t, netip.MustParseAddr("168.63.129.16"))
	t.Cleanup(func() { net.DefaultResolver = was })
	d, _ := downloader(t, func(c *input.Config) { c.AllowPrivateNetworks = true })
	_, err := d.Fetch(t.Context(), "http://files.example.org./hidden?"+secret, io.Discard)
	wantFailure(t, err, "files.example.org", "metadata service of a cloud")
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://files.example.org./hidden", http.StatusFound)
	})
	_, err = d.Fetch(t.Context(), s.URL+"/hidden?"+secret, io.Discard)
	wantFailure(t, err, "metadata service of a cloud")
}

// The node itself and its inference servers must be refused, under every
// address and name, also if they are added later.
func TestOwnAddressesAreNeverAnInput(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		fmt.Fprint(w, "a\n")
	})
	other := serve(t, s.Config.Handler.ServeHTTP)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	_, otherPort, _ := net.SplitHostPort(other.Listener.Addr().String())
	for _, own := range []string{"127.0.0.1:" + port, "localhost:" + port, ":" + port, "0.0.0.0:" + port, "[::]:" + port, "[::ffff:127.0.0.1]:" + port} {
		var all atomic.Pointer[[]string] // a dial that was stopped may still call OwnAddresses
		all.Store(&[]string{"no..name:" + port, "no address", "127.0.0.1:" + otherPort})
		d, _ := downloader(t, func(c *input.Config) {
			c.AllowPrivateNetworks = true
			c.OwnAddresses = func() []string { return *all.Load() }
		})
		if _, err := d.Fetch(t.Context(), s.URL, io.Discard); err != nil {
			t.Errorf("%s is not known yet: %v", own, err)
		}
		all.Store(&[]string{own})
		for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.2"} {
			_, err := d.Fetch(t.Context(), "http://"+net.JoinHostPort(strings.Trim(host, "[]"), port)+"/hidden?"+secret, io.Discard)
			wantFailure(t, err, "this service itself or to one of its inference servers", "no setting permits")
		}
		_, err := d.Fetch(t.Context(), other.URL+"/hidden?to="+s.URL, io.Discard)
		wantFailure(t, err, "this service itself")
		if _, err := d.Fetch(t.Context(), other.URL, io.Discard); err != nil {
			t.Errorf("%s refuses another address: %v", own, err)
		}
	}
}

// The address of another node is refused before a connection is made.
func TestAddressesOfOtherNodesAreNeverAnInput(t *testing.T) {
	t.Parallel()
	d, _ := downloader(t, func(c *input.Config) {
		c.AllowPrivateNetworks = true
		c.OwnAddresses = func() []string { return []string{"192.0.2.1:8088"} }
	})
	_, err := d.Fetch(t.Context(), "http://192.0.2.1:8088/hidden?"+secret, io.Discard)
	wantFailure(t, err, "this service itself or to one of its inference servers")
}

// resolver resolves every name to a single address.
func resolver(t *testing.T, ip netip.Addr) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		t.Cleanup(func() { server.Close() })
		go func() {
			for {
				length := make([]byte, 2)
				if _, err := io.ReadFull(server, length); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(length))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}
				reply := answer(query, ip)
				if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

// answer returns the reply of a DNS server (RFC 1035, section 4): ip for a
// question about IPv4 addresses, and no address for other questions.
func answer(query []byte, ip netip.Addr) []byte {
	const header = 12
	end := header
	for query[end] != 0 { // the labels of the name
		end += 1 + int(query[end])
	}
	end += 5 // the empty label, type and class
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[header:end]...)
	if kind := binary.BigEndian.Uint16(query[end-4:]); kind == 1 {
		reply[7] = 1
		reply = append(reply, 0xC0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		reply = append(reply, ip.AsSlice()...)
	}
	return reply
}
