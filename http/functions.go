package http

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/engine/offer"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/input/function"
	"github.com/rowmill/rowmill/internal/spelling"
)

// functions are the published prompts of accounts.
type functions struct {
	*exchange.Exchange
	library function.Library
	models  *offer.Models
	audit   *auditor
}

func noFunction(name string) *request.Error {
	return request.Errorf(nethttp.StatusNotFound, "unknown_function", "there is no published Function %q in the account; GET /v1/functions lists those there are", spelling.Shorten(name, 64))
}

func noRevision(name string, revision int) *request.Error {
	return request.Errorf(nethttp.StatusNotFound, "unknown_revision", "there is no revision %d of a Function %q in the account", revision, spelling.Shorten(name, 64))
}

// functionError makes an answer of what the library says about a Function.
func functionError(err error, missing *request.Error) error {
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return missing
	case errors.Is(err, rowmill.ErrConflict):
		return request.Errorf(nethttp.StatusConflict, "function_changed", "somebody else changed the Function at the same time, and nothing of your change was stored; look at its revisions and repeat it")
	}
	return err
}

// list answers GET /v1/functions.
func (f *functions) list(c *gin.Context) error {
	return f.stream(c, `{"functions":`, f.library.Each)
}

// revisions answers GET /v1/functions/:function/revisions.
func (f *functions) revisions(c *gin.Context) error {
	name := c.Param("function")
	return f.stream(c, `{"revisions":`, func(ctx context.Context, account string, yield func(rowmill.Function) error) error {
		missing := request.Errorf(nethttp.StatusNotFound, "unknown_function", "the account has never had a Function %q", spelling.Shorten(name, 64))
		return functionError(f.library.Revisions(ctx, account, name, yield), missing)
	})
}

// stream answers with a list of definitions, one in memory at a time.
func (f *functions) stream(c *gin.Context, head string, each func(ctx context.Context, account string, yield func(rowmill.Function) error) error) error {
	account, err := readAccount(c)
	if err != nil {
		return err
	}
	return f.List(c, head, func(yield func(any) error) error {
		return each(c.Request.Context(), account, func(f rowmill.Function) error { return yield(f) })
	})
}

// show answers GET /v1/functions/:function.
func (f *functions) show(c *gin.Context) (any, error) {
	name := c.Param("function")
	account, err := readAccount(c)
	if err != nil {
		return nil, err
	}
	found, err := f.library.Published(c.Request.Context(), account, name)
	return found, functionError(err, noFunction(name))
}

// publish answers POST /v1/functions.
func (f *functions) publish(c *gin.Context) (any, error) {
	var made rowmill.Function
	publish := true
	account, err := administer(f.Exchange, c, submission.MaxDefinition, func(body *request.Object) {
		body.Read("publish", "a boolean", &publish)
		made = submission.Definition(body, f.models, "; publish and account besides")
	})
	if err != nil {
		return nil, err
	}
	details := gin.H{"model": made.Model, "publish": publish}
	err = f.audit.record(c, act{actFunctionPublish, account, made.Name, details}, func(ctx context.Context) (err error) {
		made, err = f.library.Publish(ctx, account, made, publish)
		return functionError(err, noFunction(made.Name))
	})
	return made, err
}

// rollback answers POST /v1/functions/:function/rollback.
func (f *functions) rollback(c *gin.Context) (any, error) {
	revision := 0
	account, err := administer(f.Exchange, c, exchange.SmallObject, func(body *request.Object) {
		const must = "it must be the number of a revision, from 1"
		if body.Require("revision", "a whole number", &revision, must) && revision < 1 {
			body.Add("revision", "is %d; %s", revision, must)
		}
		body.End("account and revision")
	})
	if err != nil {
		return nil, err
	}
	name := c.Param("function")
	shown := spelling.Shorten(name, 64)
	var now rowmill.Function
	err = f.audit.record(c, act{actFunctionRollback, account, shown, gin.H{"revision": revision}}, func(ctx context.Context) (err error) {
		now, err = f.library.Rollback(ctx, account, name, revision, f.runnable)
		return functionError(err, noRevision(name, revision))
	})
	return now, err
}

// runnable refuses a revision whose model is gone.
func (f *functions) runnable(old rowmill.Function) error {
	if f.models.Known(old.Model) {
		return nil
	}
	return &rowmill.InvalidError{Code: request.CodeUnknownModel, Fields: []rowmill.FieldError{{Field: "revision", Message: fmt.Sprintf(
		"revision %d runs on %q, which is no model of this service any more; publish a definition with another", old.Revision, old.Model)}}}
}

// unpublish answers DELETE /v1/functions/:function.
func (f *functions) unpublish(c *gin.Context) (any, error) {
	name := c.Param("function")
	account, err := administered(c, c.Query("account"))
	if err != nil {
		return nil, err
	}
	err = f.audit.record(c, act{actFunctionUnpublish, account, spelling.Shorten(name, 64), gin.H{}}, func(ctx context.Context) error {
		return functionError(f.library.Unpublish(ctx, account, name), noFunction(name))
	})
	return gin.H{"message": "The Function is not published any more. Its revisions stay, and jobs that run it go on."}, err
}
