package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/rowmill/rowmill/cluster/peer/peerv1"
)

// All that is known of the version before, which has no contract, is in this file. Its
// requests are envelopes of JSON, posted to one path. Here they are turned into
// requests of the contract and back, at the edge: whoever asks and whoever answers
// meets messages of the contract alone.

// pathBefore is where envelopes are posted.
const pathBefore = "/peer"

// typeBefore marks an answer to an envelope.
const typeBefore = "application/vnd.rowmill.peer+json"

// envelope is a request of the version before.
type envelope struct {
	Protocol int             `json:"protocol"`
	From     string          `json:"from"`
	Kind     string          `json:"kind"`
	Job      string          `json:"job,omitempty"`
	Epoch    int64           `json:"epoch,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
}

// reply is its answer; one of the two is set.
type reply struct {
	Reply   json.RawMessage `json:"reply,omitempty"`
	Refusal *refusalBefore  `json:"refusal,omitempty"`
}

type refusalBefore struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// methodsBefore are the methods that the version before knows, by what it calls them.
var methodsBefore = map[string]protoreflect.Name{
	"invite": "Invite", "report": "Report", "orders": "Assign", "dismiss": "Dismiss", "hint": "Hint", "drain": "Drain",
}

// namesBefore are the fields whose members of JSON have another name.
var namesBefore = map[protoreflect.FullName]string{
	"rowmill.peer.v1.AssignRequest.batches":    "deals",
	"rowmill.peer.v1.AssignRequest.acked":      "settled",
	"rowmill.peer.v1.AssignRequest.revocation": "recall",
}

// A methodBefore is a method with its messages.
type methodBefore struct {
	kind         string
	path         string
	input, reply proto.Message
}

// newMethodBefore returns the method that matches.
func newMethodBefore(matches func(kind, path string) bool) (m methodBefore, known bool) {
	methods := peerv1.File_rowmill_peer_v1_node_proto.Services().ByName("NodeService").Methods()
	for kind, name := range methodsBefore {
		path := procedure(string(name))
		if !matches(kind, path) {
			continue
		}
		method := methods.ByName(name)
		return methodBefore{kind, path, newMessage(method.Input()), newMessage(method.Output())}, true
	}
	return m, false
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // it is generated
	}
	return t.New().Interface()
}

// askBefore sends a request of the contract to a node of the version before, and
// returns its answer as one of the contract. Its error is a *Refusal where the node
// said no, or does not know the method.
func (c *Client) askBefore(r *http.Request) (*http.Response, error) {
	method, known := newMethodBefore(func(_, path string) bool { return path == r.URL.Path })
	if !known {
		return nil, refuse(CodeUnknownKind, "the node is of a version without %s", r.URL.Path)
	}
	sent, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(sent, method.input); err != nil {
		return nil, err
	}
	body := documentOf(method.input.ProtoReflect())
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	e := envelope{Protocol: Protocol, From: c.cfg.Node, Kind: method.kind, Body: text}
	e.Job, _ = body["job"].(string)
	e.Epoch, _ = body["epoch"].(int64)
	if text, err = json.Marshal(e); err != nil {
		return nil, err
	}
	if int64(len(text)) > c.cfg.MaxBody {
		return nil, refuse(CodeTooLarge, "the request has %d bytes, %d are allowed; it was not sent", len(text), c.cfg.MaxBody)
	}
	text, err = c.postBefore(r, text)
	if err != nil {
		return nil, err
	}
	var a reply
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if a.Refusal != nil {
		return nil, &Refusal{a.Refusal.Code, a.Refusal.Message}
	}
	if err := readDocument(a.Reply, method.reply.ProtoReflect()); err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	text, err = proto.Marshal(method.reply)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {typeMessage}, headerContract: {version}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

// postBefore posts an envelope and returns the answer.
func (c *Client) postBefore(r *http.Request, text []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(r.Context(), http.MethodPost, (&url.URL{Scheme: "http", Host: r.URL.Host, Path: pathBefore}).String(), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	c.metrics.bytes.WithLabelValues("request").Add(float64(len(text)))
	res, err := c.http.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.Header.Get("Content-Type") != typeBefore {
		return nil, fmt.Errorf("what listens there is no peer of this node (status %s); look for wrong addresses, and for TLS on one side only", res.Status)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, c.cfg.MaxBody+1))
	c.metrics.bytes.WithLabelValues("reply").Add(float64(len(answer)))
	if err == nil && int64(len(answer)) > c.cfg.MaxBody {
		err = refuse(CodeTooLarge, "the reply is over %d bytes", c.cfg.MaxBody)
	}
	return answer, err
}

// answerBefore has an envelope answered by the service.
func (s *Responder) answerBefore(e *exchange, r *http.Request, service http.Handler) {
	method, from, refusal := s.readBefore(e)
	if refusal != nil {
		s.refuse(e, r, refusal)
		return
	}
	e.kind = s.kinds[method.path]
	body, err := proto.Marshal(method.input)
	if err != nil {
		s.refuse(e, r, refuse(CodeInvalid, "%s: %v", method.kind, err))
		return
	}
	asked := r.Clone(r.Context())
	asked.URL.Path, asked.Body, asked.ContentLength = method.path, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	asked.Header = http.Header{"Content-Type": {typeMessage}, headerNode: {from}}
	var answered recorder
	service.ServeHTTP(&answered, asked)
	if e.refusal == nil {
		err = proto.Unmarshal(answered.body.Bytes(), method.reply)
	}
	if err != nil {
		e.refusal = internal(e.kind)
	}
	s.replyBefore(e, method.reply)
}

// readBefore reads an envelope.
func (s *Responder) readBefore(e *exchange) (m methodBefore, from string, refusal *Refusal) {
	text, err := io.ReadAll(e)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge), int64(len(text)) > s.cfg.MaxBody:
		return m, "", refuse(CodeTooLarge, "the request is over %d bytes", s.cfg.MaxBody)
	case err != nil:
		return m, "", refuse(CodeInvalid, "the request broke off: %v", err)
	}
	var read envelope
	if err := json.Unmarshal(text, &read); err != nil {
		return m, "", refuse(CodeInvalid, "the request is no envelope: %v", err)
	}
	// The version comes first: what else an unknown version means is unknown.
	if read.Protocol != Protocol {
		return m, "", refuse(CodeProtocol, "this node speaks version %d and was asked in version %d; run the same release on all nodes", Protocol, read.Protocol)
	}
	m, known := newMethodBefore(func(kind, _ string) bool { return kind == read.Kind })
	if !known {
		return m, "", refuse(CodeUnknownKind, "kind %.80q means nothing here", read.Kind)
	}
	if err := readDocument(read.Body, m.input.ProtoReflect()); err != nil {
		return m, "", refuse(CodeInvalid, "%s: %v", m.kind, err)
	}
	return m, read.From, nil
}

// replyBefore answers an envelope.
func (s *Responder) replyBefore(e *exchange, message proto.Message) {
	var a reply
	var err error
	if e.refusal != nil {
		a.Refusal = &refusalBefore{e.refusal.Code, e.refusal.Message}
	} else {
		a.Reply, err = json.Marshal(documentOf(message.ProtoReflect()))
	}
	text, _ := json.Marshal(a) // what was encoded already, or two strings
	if err != nil {
		s.cfg.Logger.Error("reply to a node cannot be encoded", "kind", e.kind, "err", err)
	}
	e.Header().Set("Content-Type", typeBefore)
	_, _ = e.Write(text) // the exchange notes that it failed
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	body   bytes.Buffer
}

// Header is that of the answer.
func (w *recorder) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader is not kept: the exchange knows what was refused.
func (w *recorder) WriteHeader(int) {}

// Write keeps some of the answer.
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }

// documentOf is a message as the version before has it in JSON: its fields under their
// names, without those that are empty. Bytes are base64.
func documentOf(m protoreflect.Message) map[string]any {
	doc := make(map[string]any)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() == protoreflect.EnumKind: // the version before has none
		case f.IsMap():
			members := make(map[string]any)
			v.Map().Range(func(name protoreflect.MapKey, value protoreflect.Value) bool {
				members[name.String()] = valueOf(value)
				return true
			})
			doc[nameOf(f)] = members
		case f.IsList():
			list := make([]any, v.List().Len())
			for i := range list {
				list[i] = valueOf(v.List().Get(i))
			}
			doc[nameOf(f)] = list
		default:
			doc[nameOf(f)] = valueOf(v)
		}
		return true
	})
	return doc
}

func valueOf(v protoreflect.Value) any {
	if m, is := v.Interface().(protoreflect.Message); is {
		return documentOf(m)
	}
	return v.Interface()
}

func nameOf(f protoreflect.FieldDescriptor) string {
	if name, is := namesBefore[f.FullName()]; is {
		return name
	}
	return string(f.Name())
}

// readDocument reads a message from JSON of the version before. Members that it does
// not know are skipped.
func readDocument(text []byte, m protoreflect.Message) error {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		member := doc[nameOf(f)]
		if len(member) == 0 || string(member) == "null" || f.Kind() == protoreflect.EnumKind {
			continue
		}
		if err := readField(member, m, f); err != nil {
			return fmt.Errorf("%s: %w", nameOf(f), err)
		}
	}
	return nil
}

func readField(text []byte, m protoreflect.Message, f protoreflect.FieldDescriptor) error {
	switch {
	case f.IsMap(): // of texts
		var members map[string]string
		if err := json.Unmarshal(text, &members); err != nil {
			return err
		}
		for name, value := range members {
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(name).MapKey(), protoreflect.ValueOfString(value))
		}
		return nil
	case f.IsList():
		var elements []json.RawMessage
		if err := json.Unmarshal(text, &elements); err != nil {
			return err
		}
		list := m.Mutable(f).List()
		for _, element := range elements {
			v, err := readValue(element, f, list.NewElement)
			if err != nil {
				return err
			}
			list.Append(v)
		}
		return nil
	}
	v, err := readValue(text, f, func() protoreflect.Value { return m.NewField(f) })
	if err == nil {
		m.Set(f, v)
	}
	return err
}

// readValue reads a value of a field; fresh makes an empty message for it.
func readValue(text []byte, f protoreflect.FieldDescriptor, fresh func() protoreflect.Value) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		v := fresh()
		return v, readDocument(text, v.Message())
	case protoreflect.BytesKind:
		return decoded(text, protoreflect.ValueOfBytes)
	case protoreflect.StringKind:
		return decoded(text, protoreflect.ValueOfString)
	case protoreflect.BoolKind:
		return decoded(text, protoreflect.ValueOfBool)
	case protoreflect.Int32Kind:
		return decoded(text, protoreflect.ValueOfInt32)
	case protoreflect.Uint32Kind:
		return decoded(text, protoreflect.ValueOfUint32)
	case protoreflect.Int64Kind:
		return decoded(text, protoreflect.ValueOfInt64)
	}
	return protoreflect.Value{}, fmt.Errorf("a %v is of a later version", f.Kind())
}

func decoded[T any](text []byte, value func(T) protoreflect.Value) (protoreflect.Value, error) {
	var v T
	err := json.Unmarshal(text, &v)
	return value(v), err
}
