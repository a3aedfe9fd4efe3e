package anthropic

import (
	"time"

	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/exchange"
)

// A ModelView is a model in an answer.
type ModelView struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"` // "model"
	Name      string    `json:"display_name"`
	Created   time.Time `json:"created_at"` // the Unix epoch: the time is unknown
	Lifecycle string    `json:"lifecycle"`
	MaxInput  *int      `json:"max_input_tokens"` // prompt and answer together; null: unknown
}

// ViewModel returns a model as an answer shows it.
func ViewModel(o offer.ListedModel) ModelView {
	return ModelView{
		ID: o.Model.ID, Type: "model", Name: o.Model.ID, Created: time.Unix(0, 0).UTC(), Lifecycle: "active", MaxInput: exchange.OrNull(o.Model.ContextLength),
	}
}

// ViewModels returns the answer with all models, in one page.
func ViewModels(all []offer.ListedModel) any {
	list := struct {
		Data    []ModelView `json:"data"`
		HasMore bool        `json:"has_more"`
		FirstID *string     `json:"first_id"`
		LastID  *string     `json:"last_id"`
	}{Data: make([]ModelView, len(all))}
	for i, o := range all {
		list.Data[i] = ViewModel(o)
	}
	if n := len(all); n > 0 {
		list.FirstID, list.LastID = &list.Data[0].ID, &list.Data[n-1].ID
	}
	return list
}
