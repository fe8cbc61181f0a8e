package feedback

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/fleetthrottle/throttle"
)

// A Meter is a [throttle.Policy.Meter]: it returns the writer that sees an answer's body while the
// caller reads it, or nil for an answer without a cost to read.
type Meter = func(*http.Response) throttle.Meter

// Events returns a meter that calls read with the data of each event of an event stream
// (text/event-stream), with each line of a JSON stream (application/x-ndjson, jsonl or
// stream+json), or with a JSON body as a whole. read returns the cost of the request as far as the
// data states it, or a negative number. The last cost counts, because later events are more
// precise. read must not keep the data.
//
// Data above 1 MB is skipped. If the body is cut, read sees the beginning of the last event: it
// must not accept a number whose end is missing.
//
// Events returns nil for an error (400 and above) and for all other media types.
func Events(resp *http.Response, read func(data []byte) (cost int)) throttle.Meter {
	if resp.StatusCode >= http.StatusBadRequest {
		return nil
	}

	m := &events{read: read, cost: -1}
	switch media := mediaType(resp); media {
	case "text/event-stream":
		m.split = (*events).eventLine
	case "application/x-ndjson", "application/jsonl", "application/stream+json":
		m.split = (*events).jsonLine
	default:
		if !document(media) {
			return nil
		}
	}

	return m
}

// mostEvent is how much data one event may have. The last event of some streams has the whole
// answer once more.
const mostEvent = 1 << 20

// keptRoom is how much memory is kept for the next line or event.
const keptRoom = 64 << 10

// errLong ends the reading of a document that is too long.
var errLong = errors.New("feedback: the document is too long to be metered")

// events is the [throttle.Meter] of Events.
type events struct {
	read  func([]byte) int
	split func(m *events) // takes the line that has ended; nil if the body is one document
	cost  int

	line    buffer // that has begun; or the whole document
	data    buffer // of the event that has begun
	hasData bool
	begun   bool // the first line is over
	cr      bool // the last line ended with a CR, so that an LF belongs to its end
}

// A buffer holds up to mostEvent bytes. If more are added the buffer is spoilt, and holds nothing.
type buffer struct {
	bytes  []byte
	spoilt bool
}

// add appends bytes, or spoils the buffer if they are too many.
func (b *buffer) add(p []byte) {
	if b.spoilt || len(b.bytes)+len(p) > mostEvent {
		b.bytes, b.spoilt = nil, true
		return
	}
	b.bytes = append(b.bytes, p...)
}

// reset makes the buffer empty.
func (b *buffer) reset() {
	b.spoilt, b.bytes = false, b.bytes[:0]
	if cap(b.bytes) > keptRoom {
		b.bytes = nil
	}
}

// Write implements [throttle.Meter].
func (m *events) Write(p []byte) (n int, err error) {
	n = len(p)

	// A JSON document is read as a whole, at its end.
	if m.split == nil {
		m.line.add(p)
		if m.line.spoilt {
			return n, errLong
		}
		return n, nil
	}

	for len(p) > 0 {
		// The two bytes of a line end can come in two pieces.
		if m.cr && p[0] == '\n' {
			m.cr, p = false, p[1:]
			continue
		}

		m.cr = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			m.line.add(p)
			break
		}

		m.line.add(p[:end])
		m.cr, p = p[end] == '\r', p[end+1:]
		m.endLine()
	}

	return n, nil
}

// endLine ends a line of a stream.
func (m *events) endLine() {
	// The first line may begin with a byte order mark.
	if !m.begun {
		m.begun = true
		m.line.bytes = bytes.TrimPrefix(m.line.bytes, []byte("\ufeff"))
	}
	m.split(m)
	m.line.reset()
}

// eventLine takes a line of an event stream. An empty line ends an event.
func (m *events) eventLine() {
	line := m.line.bytes
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case m.line.spoilt: // only data is as long as this
		m.data.spoilt, m.hasData = true, true
	case len(line) == 0:
		m.endEvent()
	case isData:
		// Several data lines of one event are joined by line feeds.
		if m.hasData {
			m.data.add([]byte{'\n'})
		}
		m.data.add(bytes.TrimPrefix(data, []byte{' '}))
		m.hasData = true
	}
}

// endEvent hands over the data of an event.
func (m *events) endEvent() {
	if m.hasData && !m.data.spoilt {
		m.take(m.data.bytes)
	}
	m.hasData = false
	m.data.reset()
}

// jsonLine takes a line of a stream of JSON.
func (m *events) jsonLine() {
	if len(m.line.bytes) > 0 {
		m.take(m.line.bytes)
	}
}

// take has data read.
func (m *events) take(data []byte) {
	if cost := m.read(data); cost >= 0 {
		m.cost = cost
	}
}

// Cost implements [throttle.Meter].
func (m *events) Cost() int {
	switch {
	case m.split != nil:
		// The last event may have no end.
		m.endLine()
		m.endEvent()
	case !m.line.spoilt && len(m.line.bytes) > 0:
		m.take(m.line.bytes)
	}
	return m.cost
}
