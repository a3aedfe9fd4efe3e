// Package functions answers requests about Functions: published prompts, their revisions,
// and a run for one input.
package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/http/audit"
	"github.com/rowmill/rowmill/http/caller"
	"github.com/rowmill/rowmill/http/exchange"
	"github.com/rowmill/rowmill/http/request"
	"github.com/rowmill/rowmill/http/submission"
	"github.com/rowmill/rowmill/http/submit"
	"github.com/rowmill/rowmill/internal/textfmt"
	"github.com/rowmill/rowmill/results/archive"
)

// Functions answers requests about the published prompts of accounts, and runs them for
// one input.
type Functions struct {
	*submit.Submissions
	Archive *archive.Archive
	Audit   *audit.Auditor
}

// Route adds the routes of Functions.
func (f *Functions) Route(v1 gin.IRoutes) {
	v1.GET("/functions", f.HandleRaw(f.list))
	v1.POST("/functions", f.Handle(f.publish))
	v1.GET("/functions/:function", f.Handle(f.show))
	v1.DELETE("/functions/:function", f.Handle(f.unpublish))
	v1.GET("/functions/:function/revisions", f.HandleRaw(f.listRevisions))
	v1.POST("/functions/:function/rollback", f.Handle(f.rollback))
	v1.POST("/functions/:function/run", f.Handle(f.run))
}

func functionNotFoundError(name string) *request.Error {
	return request.Errorf(http.StatusNotFound, "unknown_function", "there is no published Function %q in the account; GET /v1/functions lists the published ones", textfmt.Shorten(name, 64))
}

func revisionNotFoundError(name string, revision int) *request.Error {
	return request.Errorf(http.StatusNotFound, "unknown_revision", "there is no revision %d of a Function %q in the account", revision, textfmt.Shorten(name, 64))
}

// functionError turns an error of function.Library into an error for the client. It
// returns missing if the Function or the revision does not exist.
func functionError(err error, missing *request.Error) error {
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return missing
	case errors.Is(err, rowmill.ErrConflict):
		return request.Errorf(http.StatusConflict, "function_changed", "another request changed the Function at the same time, so your change was not stored; read its revisions and repeat the change")
	}
	return err
}

// list answers GET /v1/functions with the published Functions of an account.
func (f *Functions) list(c *gin.Context) error {
	return f.streamFunctions(c, `{"functions":`, f.Intake.Functions.EachPublished)
}

// listRevisions answers GET /v1/functions/:function/revisions with all revisions of a
// Function.
func (f *Functions) listRevisions(c *gin.Context) error {
	name := c.Param("function")
	return f.streamFunctions(c, `{"revisions":`, func(ctx context.Context, account string, yield func(rowmill.Function) error) error {
		missing := request.Errorf(http.StatusNotFound, "unknown_function", "the account has never had a Function %q", textfmt.Shorten(name, 64))
		return functionError(f.Intake.Functions.EachRevision(ctx, account, name, yield), missing)
	})
}

// streamFunctions answers with a list of the definitions of Functions. Only one definition is in
// memory at a time. head is the JSON text before the list.
func (f *Functions) streamFunctions(c *gin.Context, head string, each func(ctx context.Context, account string, yield func(rowmill.Function) error) error) error {
	account, err := caller.ResolveReadAccount(c)
	if err != nil {
		return err
	}
	return f.StreamList(c, head, func(yield func(any) error) error {
		return each(c.Request.Context(), account, func(f rowmill.Function) error { return yield(f) })
	})
}

// show answers GET /v1/functions/:function with the published revision of a Function.
func (f *Functions) show(c *gin.Context) (any, error) {
	name := c.Param("function")
	account, err := caller.ResolveReadAccount(c)
	if err != nil {
		return nil, err
	}
	found, err := f.Intake.Functions.GetPublished(c.Request.Context(), account, name)
	return found, functionError(err, functionNotFoundError(name))
}

// publish answers POST /v1/functions: it stores a new revision of a Function, and
// publishes the revision unless the field publish is false.
func (f *Functions) publish(c *gin.Context) (any, error) {
	var made rowmill.Function
	publish := true
	account, err := caller.ReadAdminRequest(f.Exchange, c, submission.MaxDefinition, func(body *request.JSONObject) {
		body.Read("publish", "a boolean", &publish)
		made = submission.ReadDefinition(body, f.Intake.Models, ", and publish and account")
	})
	if err != nil {
		return nil, err
	}
	details := gin.H{"model": made.Model, "publish": publish}
	err = f.Audit.RecordAndRun(c, audit.Action{Name: audit.FunctionPublish, Account: account, Target: made.Name, Details: details}, func(ctx context.Context) (err error) {
		made, err = f.Intake.Functions.AddRevision(ctx, account, made, publish)
		return functionError(err, functionNotFoundError(made.Name))
	})
	return made, err
}

// rollback answers POST /v1/functions/:function/rollback: it publishes an earlier
// revision of a Function.
func (f *Functions) rollback(c *gin.Context) (any, error) {
	revision := 0
	account, err := caller.ReadAdminRequest(f.Exchange, c, exchange.SmallObject, func(body *request.JSONObject) {
		const must = "it must be the number of a revision, from 1"
		if body.Require("revision", "a whole number", &revision, must) && revision < 1 {
			body.AddProblem("revision", "is %d; %s", revision, must)
		}
		body.RejectUnknown("account and revision")
	})
	if err != nil {
		return nil, err
	}
	name := c.Param("function")
	shown := textfmt.Shorten(name, 64)
	var now rowmill.Function
	err = f.Audit.RecordAndRun(c, audit.Action{Name: audit.FunctionRollback, Account: account, Target: shown, Details: gin.H{"revision": revision}}, func(ctx context.Context) (err error) {
		now, err = f.Intake.Functions.Rollback(ctx, account, name, revision, f.checkModel)
		return functionError(err, revisionNotFoundError(name, revision))
	})
	return now, err
}

// checkModel returns an error for the client if this service no longer has the model of
// a revision.
func (f *Functions) checkModel(old rowmill.Function) error {
	if f.Intake.Models.HasModel(old.Model) {
		return nil
	}
	return &rowmill.InvalidError{Code: request.CodeUnknownModel, Fields: []rowmill.FieldError{{Field: "revision", Message: fmt.Sprintf(
		"revision %d uses the model %q, which this service no longer has; publish a definition with another model", old.Revision, old.Model)}}}
}

// unpublish answers DELETE /v1/functions/:function. The revisions of the Function stay.
func (f *Functions) unpublish(c *gin.Context) (any, error) {
	name := c.Param("function")
	account, err := caller.ResolveAdminAccount(c, c.Query("account"))
	if err != nil {
		return nil, err
	}
	err = f.Audit.RecordAndRun(c, audit.Action{Name: audit.FunctionUnpublish, Account: account, Target: textfmt.Shorten(name, 64), Details: gin.H{}}, func(ctx context.Context) error {
		return functionError(f.Intake.Functions.Unpublish(ctx, account, name), functionNotFoundError(name))
	})
	return gin.H{"message": "The Function is no longer published. Its revisions stay, and jobs that run it continue."}, err
}
