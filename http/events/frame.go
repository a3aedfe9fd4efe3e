package events

import "bytes"

// ContentType is the content type of a stream.
const ContentType = "text/event-stream"

// Names of the events that a stream sends.
const (
	EventJob     = "job"     // data: a job, as GET /v1/jobs/{job_id} shows it
	EventNodes   = "nodes"   // data: the list of nodes
	EventResync  = "resync"  // events before this one may be missing, so the current states of all jobs follow
	EventReady   = "ready"   // the stream has sent all current states
	EventExpired = "expired" // the key is no longer valid; the stream ends
)

// AppendFrame appends the text of an event to stream. data is one line of JSON, with or
// without a line end. If id is empty, the event gets no id.
func AppendFrame(stream []byte, name, id string, data []byte) []byte {
	stream = append(append(append(stream, "event: "...), name...), '\n')
	if id != "" {
		stream = append(append(append(stream, "id: "...), id...), '\n')
	}
	return append(append(append(stream, "data: "...), bytes.TrimSuffix(data, []byte("\n"))...), "\n\n"...)
}
