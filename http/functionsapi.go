package http

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	nethttp "net/http"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill"
	"github.com/rowmill/rowmill/catalog"
	"github.com/rowmill/rowmill/function"
	"github.com/rowmill/rowmill/schema"
)

// maxDefinitionBytes bounds the body of a definition: prompt, system prompt and
// schema at their limits, with every byte of the texts written as \u00XX.
const maxDefinitionBytes = 16 << 20

func noFunction(name string) *apiError {
	return errorf(nethttp.StatusNotFound, "unknown_function", "there is no published Function %q in the account; GET /v1/functions lists those there are", shorten(name, 64))
}

// functionError makes an answer of what the library says about a Function.
func functionError(err error, missing *apiError) error {
	switch {
	case errors.Is(err, rowmill.ErrNotFound):
		return missing
	case errors.Is(err, rowmill.ErrConflict):
		return errorf(nethttp.StatusConflict, "function_changed", "somebody else changed the Function at the same time, and nothing of your change was stored; look at its revisions and repeat it")
	}
	return err
}

// readAccount is the account whose Functions a request reads: the caller's own
// unless an administrator names another.
func readAccount(c *gin.Context) (string, error) {
	own := caller(c).account
	if named := c.Query("account"); named != "" && named != own {
		return administered(c, named)
	}
	return own, nil
}

// listFunctions answers GET /v1/functions.
func (s *Server) listFunctions(c *gin.Context) {
	s.streamFunctions(c, "functions", func(account string, yield func(rowmill.Function) error) error {
		return s.library().Each(c.Request.Context(), account, yield)
	})
}

// listRevisions answers GET /v1/functions/:function/revisions.
func (s *Server) listRevisions(c *gin.Context) {
	name := c.Param("function")
	s.streamFunctions(c, "revisions", func(account string, yield func(rowmill.Function) error) error {
		missing := errorf(nethttp.StatusNotFound, "unknown_function", "the account has never had a Function %q", shorten(name, 64))
		return functionError(s.library().Revisions(c.Request.Context(), account, name, yield), missing)
	})
}

// streamFunctions answers with a list of definitions, one in memory at a time.
func (s *Server) streamFunctions(c *gin.Context, field string, each func(account string, yield func(rowmill.Function) error) error) {
	account, err := readAccount(c)
	if err != nil {
		s.fail(c, err)
		return
	}
	s.stream(c, jsonType, "", func(w *bufio.Writer) error {
		separator := fmt.Sprintf(`{%q:[`, field)
		err := each(account, func(f rowmill.Function) error {
			text, err := encode(f)
			if err != nil {
				return fmt.Errorf("encode Function %s: %w", f.Name, err)
			}
			_, _ = w.WriteString(separator)
			separator = ","
			_, err = w.Write(text)
			return err
		})
		if err != nil {
			return err
		}
		if separator != "," {
			_, _ = w.WriteString(separator)
		}
		_, err = w.WriteString("]}\n")
		return err
	})
}

// getFunction answers GET /v1/functions/:function.
func (s *Server) getFunction(c *gin.Context) {
	name := c.Param("function")
	account, err := readAccount(c)
	var f rowmill.Function
	if err == nil {
		f, err = s.library().Published(c.Request.Context(), account, name)
		err = functionError(err, noFunction(name))
	}
	s.showFunction(c, f, err)
}

func (s *Server) showFunction(c *gin.Context, f rowmill.Function, err error) {
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, f)
}

// publishFunction answers POST /v1/functions.
func (s *Server) publishFunction(c *gin.Context) {
	f, account, publish, err := s.decodeDefinition(c)
	if err == nil {
		details := gin.H{"model": f.Model, "publish": publish}
		err = s.record(c, act{actFunctionPublish, account, f.Name, details}, func(ctx context.Context) (err error) {
			f, err = s.library().Publish(ctx, account, f, publish)
			return functionError(err, noFunction(f.Name))
		})
	}
	s.showFunction(c, f, err)
}

// rollbackFunction answers POST /v1/functions/:function/rollback.
func (s *Server) rollbackFunction(c *gin.Context) {
	f, err := s.rollback(c)
	s.showFunction(c, f, err)
}

func (s *Server) rollback(c *gin.Context) (f rowmill.Function, err error) {
	// Those who may change nothing learn nothing of what a body may hold.
	if _, err := administered(c, ""); err != nil {
		return f, err
	}
	var problems problems
	body, err := s.readObject(c, &problems)
	if err != nil {
		return f, err
	}
	name, named, revision := c.Param("function"), namedAccount(c, &body), 0
	if _, given := body.fields["revision"]; !given {
		problems.add("revision", "is missing; it must be the number of a revision, from 1")
	} else if body.read("revision", "a whole number", &revision) && revision < 1 {
		problems.add("revision", "is %d; it must be the number of a revision, from 1", revision)
	}
	body.end("account and revision")
	if err := problems.err(); err != nil {
		return f, err
	}
	account, err := administered(c, named)
	if err != nil {
		return f, err
	}
	missing := errorf(nethttp.StatusNotFound, "unknown_revision", "there is no revision %d of a Function %q in the account", revision, shorten(name, 64))
	err = s.record(c, act{actFunctionRollback, account, shorten(name, 64), gin.H{"revision": revision}}, func(ctx context.Context) (err error) {
		f, err = s.library().Rollback(ctx, account, name, revision, s.runnable)
		return functionError(err, missing)
	})
	return f, err
}

// runnable refuses a revision whose model is gone.
func (s *Server) runnable(f rowmill.Function) error {
	if _, found := s.Catalog.Find(f.Model); found {
		return nil
	}
	return &rowmill.InvalidError{Code: codeUnknownModel, Fields: []rowmill.FieldError{{Field: "revision", Message: fmt.Sprintf(
		"revision %d runs on %q, which is no model of this service any more; publish a definition with another", f.Revision, f.Model)}}}
}

// unpublishFunction answers DELETE /v1/functions/:function.
func (s *Server) unpublishFunction(c *gin.Context) {
	name := c.Param("function")
	account, err := administered(c, c.Query("account"))
	if err == nil {
		err = s.record(c, act{actFunctionUnpublish, account, shorten(name, 64), gin.H{}}, func(ctx context.Context) error {
			return functionError(s.library().Unpublish(ctx, account, name), noFunction(name))
		})
	}
	if err != nil {
		s.fail(c, err)
		return
	}
	answer(c, nethttp.StatusOK, gin.H{"message": "The Function is not published any more. Its revisions stay, and jobs that run it go on."})
}

// decodeDefinition reads and checks the definition in a body.
func (s *Server) decodeDefinition(c *gin.Context) (f rowmill.Function, account string, publish bool, err error) {
	// Those who may change nothing learn nothing of what a body may hold.
	if _, err := administered(c, ""); err != nil {
		return f, "", false, err
	}
	var problems problems
	body, err := s.readObjectUpTo(c, &problems, maxDefinitionBytes)
	if err != nil {
		return f, "", false, err
	}
	named, publish := namedAccount(c, &body), true
	body.read("publish", "a boolean", &publish)
	f = definition(&body, s.Catalog)
	// What a service answered may be edited and sent back.
	for _, field := range []string{"revision", "created_at", "published_at"} {
		delete(body.fields, field)
	}
	body.end("name, description, inputs, prompt, system_prompt, model, json_schema, sampling_params, publish and account")
	problems.compile("json_schema", f.Schema)
	if err := problems.err(); err != nil {
		return f, "", false, err
	}
	account, err = administered(c, named)
	return f, account, publish, err
}

// definition takes a definition out of a body, and adds what is wrong with it
// to the body's problems.
func definition(body *object, models *catalog.Catalog) rowmill.Function {
	var f rowmill.Function
	before := len(body.problems.fields)
	for _, field := range []struct {
		name string
		into any
	}{
		{"name", &f.Name}, {"description", &f.Description}, {"prompt", &f.Prompt}, {"system_prompt", &f.System}, {"model", &f.Model},
	} {
		body.read(field.name, "a string", field.into)
	}
	for _, entry := range body.objects("inputs") {
		in := rowmill.FunctionInput{Required: true}
		entry.read("name", "a string", &in.Name)
		entry.read("description", "a string", &in.Description)
		entry.read("required", "a boolean", &in.Required)
		entry.end("name, required and description")
		f.Inputs = append(f.Inputs, in)
	}
	readable := len(body.problems.fields) == before
	if readable { // else a field would be said to lack what could not be read
		body.problems.addCode(codeInvalid, function.Check(&f)...)
	}
	if _, taken := models.Find(f.Name); taken {
		body.problems.add("name", "%q is the id of a model, which goes first in a submission; choose another", f.Name)
	}
	if f.System != nil && len(*f.System) > maxSystemBytes {
		body.problems.add("system_prompt", "has %d bytes, more than %d; shorten it", len(*f.System), maxSystemBytes)
	}
	model, found := models.Find(f.Model)
	if !found && readable {
		hint := "name a model of the catalog (a Function cannot call another)"
		if near := models.Nearest(f.Model); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		body.problems.addCode(codeUnknownModel, rowmill.FieldError{Field: "model", Message: fmt.Sprintf("%q is no model of this service; %s", shorten(f.Model, 128), hint)})
	}
	embedding := found && model.Kind == rowmill.KindEmbedding
	if embedding && f.System != nil {
		body.problems.add("system_prompt", "cannot be used by an embedding model, which embeds the prompt alone; leave it out")
	}
	f.Schema = readSchema(body, embedding)
	if !found {
		model.ContextLength = math.MaxInt
	}
	f.Sampling = readSampling(body, model)
	return f
}

func readSchema(body *object, embedding bool) json.RawMessage {
	var raw json.RawMessage
	if !body.read("json_schema", "an object", &raw) {
		return nil
	}
	text, err := schema.Check(raw)
	switch {
	case err != nil:
		body.problems.add("json_schema", "%s", err)
	case embedding:
		body.problems.add("json_schema", "cannot be kept by an embedding model, whose outputs are lists of numbers; leave it out")
	}
	return text
}

// readSampling reads the parameters, with their numbers as they were written.
func readSampling(body *object, model rowmill.Model) map[string]any {
	var raw json.RawMessage
	var given map[string]any
	if !body.read("sampling_params", "an object", &raw) {
		return map[string]any{}
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&given); err != nil {
		body.problems.addCode(catalog.CodeInvalidSampling, rowmill.FieldError{Field: "sampling_params", Message: "must be an object or null"})
		return nil
	}
	if _, _, err := catalog.MergeSampling(model, given); err != nil {
		body.problems.addCode(err.Code, err.Fields...)
	} else if model.Kind == rowmill.KindEmbedding && len(given) > 0 {
		body.problems.add("sampling_params", "cannot be used by an embedding model, which generates no text; leave it out")
	}
	return given
}
