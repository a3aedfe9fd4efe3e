package events

import "bytes"

// ContentType is that of a stream.
const ContentType = "text/event-stream"

// The names of events.
const (
	EventJob     = "job"     // data: a job as it is shown
	EventNodes   = "nodes"   // data: the list of nodes
	EventResync  = "resync"  // what was told before may have gaps: all there is follows
	EventReady   = "ready"   // all there is was told
	EventExpired = "expired" // the key is not valid any more; the stream ends
)

// AppendFrame appends an event to a stream: data is one line of JSON, with or
// without its end. An empty id is left out.
func AppendFrame(stream []byte, name, id string, data []byte) []byte {
	stream = append(append(append(stream, "event: "...), name...), '\n')
	if id != "" {
		stream = append(append(append(stream, "id: "...), id...), '\n')
	}
	return append(append(append(stream, "data: "...), bytes.TrimSuffix(data, []byte("\n"))...), "\n\n"...)
}
