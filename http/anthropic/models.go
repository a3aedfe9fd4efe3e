package anthropic

import (
	"time"

	"github.com/rowmill/rowmill/engine/served"
	"github.com/rowmill/rowmill/http/exchange"
)

// A ModelView is a model as Anthropic's API shows it.
type ModelView struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"` // "model"
	Name      string    `json:"display_name"`
	Created   time.Time `json:"created_at"` // always the Unix epoch, because the time is unknown
	Lifecycle string    `json:"lifecycle"`
	MaxInput  *int      `json:"max_input_tokens"` // largest number of tokens in prompt and answer together; null: unknown
}

// NewModelView returns a model as Anthropic's API shows it.
func NewModelView(o served.ListedModel) ModelView {
	return ModelView{
		ID: o.Model.ID, Type: "model", Name: o.Model.ID, Created: time.Unix(0, 0).UTC(), Lifecycle: "active", MaxInput: exchange.NilIfZero(o.Model.ContextLength),
	}
}

// NewModelList returns a list of all models as Anthropic's API shows it, in one page.
func NewModelList(all []served.ListedModel) any {
	views := make([]ModelView, len(all))
	for i, o := range all {
		views[i] = NewModelView(o)
	}
	return newList(views, false, func(v *ModelView) *string { return &v.ID })
}
