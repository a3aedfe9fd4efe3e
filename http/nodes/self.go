package nodes

import (
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/client"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
)

// selfView is the answer of GET /v1/me: the caller and the node that answers.
type selfView struct {
	Account   string  `json:"account"`
	Role      string  `json:"role"`
	Operator  bool    `json:"operator"` // may act for all accounts
	KeyID     *string `json:"key_id"`   // null for a configured key
	KeyName   *string `json:"key_name"` // null if the key has no name
	Version   string  `json:"version"`
	Node      string  `json:"node"`      // empty if the node does not know its name yet
	Simulated bool    `json:"simulated"` // at least one inference server that is up is simulated
}

// showCaller answers GET /v1/me.
func (n *Nodes) showCaller(c *gin.Context) (any, error) {
	who := caller.PrincipalOf(c)
	view := selfView{
		Account: who.Account, Role: who.Role, Operator: caller.CheckOperator(c) == nil,
		KeyID: exchange.NilIfZero(who.KeyID), KeyName: exchange.NilIfZero(who.Name), Version: n.Version,
		Node:      ownName(n.Service.Nodes(c.Request.Context())),
		Simulated: slices.ContainsFunc(n.Service.Servers(), func(server served.Server) bool { return server.Simulated }),
	}
	return view, nil
}

// ownName returns the name of the node that answers, or "" if the node is not in the
// list.
func ownName(nodes []client.Node) string {
	for _, n := range nodes {
		if n.Self {
			return n.Name
		}
	}
	return ""
}
