package http

import (
	"cmp"
	"errors"
	nethttp "net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/anthropic"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/openai"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/internal/textfmt"
)

// TokenCounting describes how this node counts the tokens of the prompts of a model.
type TokenCounting struct {
	Exact     bool     // counted with the model's own vocabulary and template
	MeanError *float64 // recent mean error of the counts on this node, in tokens; nil before the first comparison with a server
}

// Values of modelView.Counted: how the tokens of prompts are counted, best first.
const (
	countedExactly  = "exact"     // counted with the model's own vocabulary and template
	countedByServer = "server"    // estimated; if the estimate is near a limit, the inference server counts
	countedRoughly  = "estimated" // counted with another vocabulary, and corrected by the counts that servers report
)

// modelOwner is the owner of every model in answers.
const modelOwner = "rowmill"

// modelView is a model in the answer of GET /v1/models. Prices are in USD per million
// tokens.
type modelView struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Created       int64             `json:"created"`        // 0: unknown; OpenAI's clients require a time
	OwnedBy       string            `json:"owned_by"`       // OpenAI's clients require an owner
	Kind          *rowmill.Kind     `json:"kind"`           // null while the kind is unknown
	ContextLength *int              `json:"context_length"` // in tokens; null if unknown
	Dimension     *int              `json:"dimension"`      // numbers in an embedding; null unless the model is an embedding model
	InputPrice    *exchange.Decimal `json:"input_price"`    // null if the model has no price
	OutputPrice   *exchange.Decimal `json:"output_price"`
	Sampling      map[string]any    `json:"sampling_params"`
	Aliases       []string          `json:"aliases"`
	Counted       string            `json:"counted"`     // how prompts are counted: exact, server or estimated
	CountError    *exchange.Decimal `json:"count_error"` // mean error of the token counts before they are corrected, in tokens
	Servers       []serverView      `json:"served_by"`
	Problem       *string           `json:"problem"` // why jobs cannot use the model now; null if they can
}

type serverView struct {
	Node   string `json:"node"`
	Engine string `json:"engine"`
	Kind   string `json:"kind"`
	Model  string `json:"model"` // name of the model on the server
	// Stopped means that the server does not run, and that its node starts it for rows.
	Stopped bool `json:"stopped"`
}

// modelHandlers answers requests about the models that the service has.
type modelHandlers struct {
	*exchange.Exchange
	all      *served.Models
	counting func(rowmill.Model) TokenCounting
}

// route adds the routes of models.
func (m *modelHandlers) route(v1 gin.IRoutes) {
	v1.GET("/models", m.Handle(m.list))
	v1.GET("/models/*model", m.Handle(m.show))
}

// newModelsErrorBody returns the body of an error on the routes of models, in the form that
// the client expects. Anthropic's clients send a version header. OpenAI's clients send
// their key after the word Bearer. Clients of this API send a token after the same
// word, so each request with Bearer gets a body with both forms.
func newModelsErrorBody(c *gin.Context, e *request.Error) any {
	if c.GetHeader(anthropic.HeaderVersion) != "" {
		return anthropic.NewErrorBody(c, e)
	}
	body := exchange.NativeErrorBody(c, e)
	if scheme, _, _ := strings.Cut(c.GetHeader("Authorization"), " "); strings.EqualFold(scheme, openai.Scheme) {
		body["error"] = openai.ErrorObject(e)
	}
	return body
}

// list answers GET /v1/models. Models that are served now come first.
func (m *modelHandlers) list(c *gin.Context) (any, error) {
	all := m.all.List()
	slices.SortStableFunc(all, func(a, b served.ListedModel) int {
		return cmp.Compare(min(1, len(b.Servers)), min(1, len(a.Servers)))
	})
	if c.GetHeader(anthropic.HeaderVersion) != "" {
		return anthropic.NewModelList(all), nil
	}
	views := make([]modelView, len(all))
	for i, offered := range all {
		views[i] = m.view(offered)
	}
	return gin.H{"object": "list", "data": views}, nil
}

// show answers GET /v1/models/{model}. The path may have the model's id or an alias.
func (m *modelHandlers) show(c *gin.Context) (any, error) {
	name := strings.TrimPrefix(c.Param("model"), "/")
	id := name
	var unknown *served.UnknownModelError
	if model, err := m.all.Find(name); errors.As(err, &unknown) {
		return nil, request.Errorf(nethttp.StatusNotFound, "not_found", "%s", err)
	} else if err == nil {
		id = model.ID
	}
	for _, o := range m.all.List() {
		if o.Model.ID != id {
			continue
		}
		if c.GetHeader(anthropic.HeaderVersion) != "" {
			return anthropic.NewModelView(o), nil
		}
		return m.view(o), nil
	}
	return nil, request.Errorf(nethttp.StatusNotFound, "not_found", "%q is not a model that can be used now", textfmt.Shorten(name, 128))
}

func (m *modelHandlers) view(o served.ListedModel) modelView {
	v := modelView{
		ID: o.Model.ID, Object: "model", OwnedBy: modelOwner, Sampling: o.Model.Sampling, Aliases: exchange.OrEmptyList(o.Aliases), Problem: exchange.NilIfZero(o.Problem),
		ContextLength: exchange.NilIfZero(o.Model.ContextLength), Dimension: exchange.NilIfZero(o.Model.Dimension), Kind: exchange.NilIfZero(o.Model.Kind), Servers: []serverView{}, Counted: countedRoughly,
	}
	if !o.Model.NoPrice {
		v.InputPrice, v.OutputPrice = (*exchange.Decimal)(&o.Model.InputPrice), (*exchange.Decimal)(&o.Model.OutputPrice)
	}
	if v.Sampling == nil {
		v.Sampling = map[string]any{}
	}
	for _, s := range o.Servers {
		v.Servers = append(v.Servers, serverView{s.Node, s.Name, s.Kind, s.Models[0].Name, s.Stopped})
		if s.Counts {
			v.Counted = countedByServer
		}
	}
	counting := m.counting(o.Model)
	if counting.Exact {
		v.Counted = countedExactly
	}
	v.CountError = (*exchange.Decimal)(counting.MeanError)
	return v
}
