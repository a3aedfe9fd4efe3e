// Package console serves the files of the web console. It does not know how the files are
// built and compressed.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rowmill/rowmill/http/exchange"
)

// Files has the files of the console.
type Files interface {
	// Open returns a file, compressed with gzip, and its content type. hashed is true if
	// the name changes with the content; ok is false if there is no such file.
	Open(name string) (gz []byte, contentType string, hashed, ok bool)
	// Index returns the HTML page of the console. Each answer with the page replaces
	// {{nonce}} by a new nonce, which the page's scripts and styles need to be accepted by
	// the browser.
	Index() []byte
}

const (
	consoleBase = "/console/"
	nonceMark   = "{{nonce}}" // placeholder in the page of Files.Index; each answer puts its nonce there
	// consolePolicy is the Content-Security-Policy of the index page. The page may load
	// files from the node itself, and run scripts and styles with the nonce. No other page
	// may embed it.
	consolePolicy = "default-src 'self'; script-src 'self' 'nonce-%[1]s'; style-src 'self' 'nonce-%[1]s'; img-src 'self' data:; " +
		"object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)

// Pages serves the console.
type Pages struct {
	*exchange.Exchange
	Console Files // nil: no console
}

// Route adds the routes of the web console.
func (p *Pages) Route(root gin.IRoutes) {
	root.GET("/", p.HandleRaw(p.redirect))
	root.GET("/console", p.HandleRaw(p.redirect))
	root.GET("/console/*path", p.show)
}

// redirect answers GET / and GET /console: it redirects browsers to the console if the
// node has a console.
func (p *Pages) redirect(c *gin.Context) error {
	if p.Console == nil || !wantsHTML(c) {
		return exchange.UnknownRoute(c)
	}
	c.Redirect(http.StatusFound, consoleBase)
	return nil
}

// show answers GET /console/*path with a file. A browser gets the index page for any
// other address.
func (p *Pages) show(c *gin.Context) {
	if p.Console == nil {
		c.String(http.StatusNotFound, "This node has no web console. /openapi.json describes the API.\n")
		return
	}
	name := strings.TrimPrefix(c.Param("path"), "/")
	gz, contentType, hashed, ok := p.Console.Open(name)
	switch {
	case name == "":
		p.sendIndex(c)
	case ok:
		p.sendFile(c, gz, contentType, hashed)
	case wantsHTML(c):
		p.sendIndex(c)
	default:
		c.String(http.StatusNotFound, "The console has no such file.\n")
	}
}

// sendIndex answers with the index page. Browsers must not cache the page, because its nonce
// works once, and because it names the files of this version.
func (p *Pages) sendIndex(c *gin.Context) {
	nonce := rand.Text()
	setSecurityHeaders(c, nonce)
	c.Header("Cache-Control", "no-store")
	c.Data(http.StatusOK, "text/html; charset=utf-8", bytes.ReplaceAll(p.Console.Index(), []byte(nonceMark), []byte(nonce)))
}

// setSecurityHeaders sets the security headers. nonce is empty for answers that run no
// script.
func setSecurityHeaders(c *gin.Context, nonce string) {
	policy := strings.ReplaceAll(consolePolicy, " 'nonce-%[1]s'", "")
	if nonce != "" {
		policy = fmt.Sprintf(consolePolicy, nonce)
	}
	c.Header("Content-Security-Policy", policy)
	c.Header("Referrer-Policy", "no-referrer")
}

// sendFile answers with a file of the console, compressed if the client accepts gzip. If
// hashed is true, browsers may cache the file forever.
func (p *Pages) sendFile(c *gin.Context, gz []byte, contentType string, hashed bool) {
	setSecurityHeaders(c, "") // an image, such as SVG, can contain scripts
	caching := "no-cache"
	if hashed {
		caching = "public, max-age=31536000, immutable"
	}
	c.Header("Cache-Control", caching)
	c.Header("Vary", "Accept-Encoding")
	if acceptsGzip(c) {
		c.Header("Content-Encoding", "gzip")
		c.Data(http.StatusOK, contentType, gz)
		return
	}
	plain, err := gunzip(gz)
	if err != nil {
		p.Fail(c, fmt.Errorf("decompress a file of the console: %w", err))
		return
	}
	c.Data(http.StatusOK, contentType, plain)
}

func gunzip(gz []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(gz))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// wantsHTML reports whether the client accepts an HTML page, as browsers do.
func wantsHTML(c *gin.Context) bool { return strings.Contains(c.GetHeader("Accept"), "text/html") }

// acceptsGzip reports whether the client accepts gzip.
func acceptsGzip(c *gin.Context) bool {
	for coding := range strings.SplitSeq(c.GetHeader("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			return strings.Trim(strings.TrimPrefix(weight, "q="), "0.") != "" || weight == ""
		}
	}
	return false
}
