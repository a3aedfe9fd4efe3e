package http

import (
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/engine/offer"
)

// self tells callers who they are, and whom they ask.
type self struct {
	service Service
	version string
}

// selfView is a caller, and the node that answers it.
type selfView struct {
	Account   string  `json:"account"`
	Role      string  `json:"role"`
	Operator  bool    `json:"operator"` // may run the service, for all accounts
	KeyID     *string `json:"key_id"`   // null for the configuration's key
	KeyName   *string `json:"key_name"` // null where it has none
	Version   string  `json:"version"`
	Node      string  `json:"node"`      // empty where the node does not know its name yet
	Simulated bool    `json:"simulated"` // a live server makes its answers up
}

// show answers GET /v1/me.
func (s *self) show(c *gin.Context) (any, error) {
	who := caller(c)
	view := selfView{
		Account: who.account, Role: who.role, Operator: operates(c) == nil,
		KeyID: orNull(who.keyID), KeyName: orNull(who.name), Version: s.version,
		Node:      nameOf(s.service.Nodes(c.Request.Context())),
		Simulated: slices.ContainsFunc(s.service.Servers(), func(server offer.Server) bool { return server.Simulated }),
	}
	return view, nil
}

// nameOf is the name of the node that answers, among all.
func nameOf(nodes []Node) string {
	for _, n := range nodes {
		if n.Self {
			return n.Name
		}
	}
	return ""
}
