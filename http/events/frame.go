package events

import "bytes"

// ContentType is the content type of a stream.
const ContentType = "text/event-stream"

// Names of events.
const (
	EventJob     = "job"     // data: a job, as GET /v1/jobs/{job_id} shows it
	EventNodes   = "nodes"   // data: the list of nodes
	EventResync  = "resync"  // earlier events may be missing, so all current states follow
	EventReady   = "ready"   // all current states were sent
	EventExpired = "expired" // the key is no longer valid; the stream ends
)

// AppendFrame appends an event to a stream. data is one line of JSON, with or without its
// line end. An empty id is left out.
func AppendFrame(stream []byte, name, id string, data []byte) []byte {
	stream = append(append(append(stream, "event: "...), name...), '\n')
	if id != "" {
		stream = append(append(append(stream, "id: "...), id...), '\n')
	}
	return append(append(append(stream, "data: "...), bytes.TrimSuffix(data, []byte("\n"))...), "\n\n"...)
}
