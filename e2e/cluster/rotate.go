package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rowmill/rowmill/internal/certtest"
)

// gossipKeyFile is the file of all nodes with the keys of the gossip.
func (c *Cluster) gossipKeyFile() string { return filepath.Join(c.dir, "gossip.key") }

// putKeys writes the keys of the gossip. Nodes encrypt with the first.
func (c *Cluster) putKeys(keys ...string) error {
	return replace(c.gossipKeyFile(), []byte(strings.Join(keys, "\n")+"\n"))
}

// replace replaces a file atomically.
func replace(file string, text []byte) error {
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// rotateKeys changes the key of the gossip, the certificates of all nodes and their CA, in the
// steps of docs/security.md, during a job and requests of clients. No request may fail, and no
// row may run again.
func rotateKeys(ctx context.Context, t *Trial) error {
	t.struck(Strike{Fault: "rotation of keys"})
	return t.withClients(ctx, func() error { return t.rotate(ctx) })
}

func (c *Cluster) rotate(ctx context.Context) error {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	former, key := c.gossipKey, base64.StdEncoding.EncodeToString(raw)
	authority, err := certtest.NewAuthority()
	if err != nil {
		return err
	}
	issued, folder := map[*Node]certtest.Files{}, ""
	for _, n := range c.nodes() {
		if folder, err = os.MkdirTemp(c.dir, "issued-"); err != nil {
			return err
		}
		if issued[n], err = authority.Issue(folder, "rowmill"); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		keys []string
		file func(n *Node, next certtest.Files) error
	}{
		{[]string{former, key}, func(n *Node, next certtest.Files) error { return put(n.files.CA, n.files.CA, next.CA) }},
		{[]string{key, former}, func(n *Node, next certtest.Files) error {
			return errors.Join(put(n.files.Cert, next.Cert), put(n.files.Key, next.Key))
		}},
		{[]string{key}, func(n *Node, next certtest.Files) error { return put(n.files.CA, next.CA) }},
	} {
		err := c.putKeys(step.keys...)
		for n, next := range issued {
			err = errors.Join(err, step.file(n, next))
		}
		if err != nil {
			return err
		}
		if err := c.awaitKeys(ctx, step.keys); err != nil {
			return err
		}
	}
	c.gossipKey, c.authority = key, authority
	return nil
}

// put writes a file with the contents of others.
func put(file string, others ...string) error {
	var all []byte
	for _, other := range others {
		text, err := os.ReadFile(other)
		if err != nil {
			return err
		}
		all = append(all, text...)
	}
	return replace(file, all)
}

// awaitKeys waits until every node that is up reports that it uses the keys.
func (c *Cluster) awaitKeys(ctx context.Context, keys []string) error {
	marks := make([]string, len(keys))
	for i, key := range keys {
		sum := sha256.Sum256([]byte(key))
		marks[i] = hex.EncodeToString(sum[:4])
	}
	want := strings.Join(marks, " ")
	return await(ctx, "all nodes use the key", patience, func(ctx context.Context) error {
		for _, n := range c.nodes() {
			if !n.up() || !n.Owns { // other nodes have no API
				continue
			}
			text, err := c.client.get(ctx, n.API+"/v1/diagnosis")
			if err != nil {
				return err
			}
			var all struct {
				Nodes []struct {
					Name  string `json:"name"`
					Facts *struct {
						Settings map[string]string `json:"settings"`
					} `json:"facts"`
				} `json:"nodes"`
			}
			if err := json.Unmarshal(text, &all); err != nil {
				return err
			}
			for _, node := range all.Nodes {
				if node.Facts == nil || node.Facts.Settings["cluster.key"] != want {
					return fmt.Errorf("%s has %+v, asked through %s; want the keys %s", node.Name, node.Facts, n.Name, want)
				}
			}
		}
		return nil
	})
}
