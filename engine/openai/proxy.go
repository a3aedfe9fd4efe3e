package openai

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// chooseProxy returns the proxy that cfg.Proxy chooses for requests to the server at base;
// nil for none.
func chooseProxy(base *url.URL, cfg *Config) (*url.URL, error) {
	proxy, err := cfg.Proxy(&http.Request{URL: base})
	switch {
	case err != nil:
		return nil, fmt.Errorf("the proxy of the environment: %w", err)
	case proxy != nil && proxy.Scheme != "http":
		return nil, fmt.Errorf("the proxy of the environment, %s, has the scheme %s; only proxies with the scheme http are supported. To connect to this server directly, add %s to NO_PROXY",
			proxy.Redacted(), proxy.Scheme, base.Hostname())
	}
	return proxy, nil
}

// proxyHeader returns the header line Proxy-Authorization with the proxy's user and
// password; empty if the proxy has no user.
func proxyHeader(proxy *url.URL) string {
	if proxy.User == nil {
		return ""
	}
	password, _ := proxy.User.Password()
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)) + "\r\n"
}

// openProxyTunnel sends CONNECT to the proxy at the other end of conn. Afterwards conn is a
// connection to the server at address.
func openProxyTunnel(ctx context.Context, conn net.Conn, proxy *url.URL, address string) error {
	if until, bounded := ctx.Deadline(); bounded {
		if err := conn.SetDeadline(until); err != nil {
			return err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n%[2]s\r\n", address, proxyHeader(proxy)); err != nil {
		return err
	}
	// The server sends nothing before it gets a request, so the buffered reader holds no
	// bytes of the server when it is dropped.
	reply, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("the proxy answers %s", reply.Status)
	}
	return conn.SetDeadline(time.Time{})
}
