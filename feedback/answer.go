package feedback

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// answer is the part of an answer's JSON body that classifiers have read so far. It is kept beside the
// body (see [peek.Kept]), because the rows of a table look for codes in the same body many times. Of a
// body that is an object it has the members in their order. A member is read when a search comes to it.
type answer struct {
	mu   sync.Mutex
	text window // of the present look
	scan jsonscan.Scanner

	kind    byte     // the first byte of the text behind a byte order mark, or 0 before it has come
	members []member // at most mostMembers
	place   int      // where to read on: behind the last member, or at its value while unread is set
	unread  bool     // the value of the last member, an object or an array, was not read yet
	tried   int      // bytes of the body in which no further member was found

	// Memory for few and short members and names, and for the scanner, so that most answers need no other.
	memberRoom [8]member
	nameRoom   [96]byte
	scanRoom   [32]byte
	named      int // bytes of nameRoom in use

	runes runeReader
}

// mostMembers bounds the members that are kept. Each search reads further members for itself.
const mostMembers = 64

// A member is a member of the object.
type member struct {
	name   []byte
	from   int    // place of the value
	to     int    // place behind the value, or 0 for an object or an array
	ended  int    // place behind the bytes that show the end of the value: of a number one more than to
	text   string // of the value, once parsed is set
	legal  bool   // the value is valid JSON, once parsed is set
	parsed bool   // a search has asked for the value
}

// A window is the text of an answer's body as far as a classifier looks at the text.
type window struct {
	peek.Text
	max int
}

// From implements [jsonscan.Source].
func (w *window) From(off int) []byte { return w.Text.From(off, w.max) }

// between returns the text from one offset to another, or nil if the text or the window ends before to, or if the body's reader
// has begun.
func (w *window) between(from, to int) (text []byte) {
	for len(text) < to-from {
		// From returns what has come so far, which may be too short. So wait for one byte more, and then ask for all of it again.
		if w.From(from+len(text)) == nil {
			return nil
		}
		text = w.From(from)
	}
	return text[:to-from]
}

// look begins a look at the first most bytes of the body.
func (a *answer) look(body peek.Text, most int64) {
	a.text = window{body, int(most)}

	// The first look sets the memory.
	if a.members == nil {
		a.members = a.memberRoom[:0]
		a.scan.SetRoom(a.scanRoom[:])
	}
}

// search walks through the JSON value and gives s the values at the end of paths, until s has its result.
func (a *answer) search(s *search, paths []path, fits textTest) {
	if a.kind == 0 {
		a.begin()
	}

	// Only the members of an object are kept for later searches.
	if a.kind != '{' {
		a.scan.Reset(&a.text, 0)
		s.whole(paths, fits)
		return
	}

	// Walk through the members that earlier searches have read. Then next appends further members.
	var few [fewPaths]path
	for i := 0; i < len(a.members) || a.next(); i++ {
		m := &a.members[i]
		inside := below(few[:0], paths, m.name)
		if len(inside) > 0 && !a.value(s, m, inside, fits) {
			return
		}
	}

	// Behind the members that are kept, each search reads for itself.
	if len(a.members) == mostMembers {
		a.searchRest(s, paths, fits)
	}
}

// begin sets kind, unless no byte has come, and reads the bracket of an object.
func (a *answer) begin() {
	a.scan.Reset(&a.text, 0)
	a.scan.BOM()
	a.kind = a.scan.Peek()
	if a.kind == '{' {
		a.scan.Open()
		a.place = a.scan.Place()
	}
}

// next reads and keeps the next member. It returns false if there is none, or none can be kept.
func (a *answer) next() bool {
	if len(a.members) == mostMembers || a.tried >= a.text.max {
		return false
	}
	if a.readMember() {
		return true
	}

	// With the same bytes a further attempt would fail, too.
	a.tried = a.text.max
	return false
}

// readMember reads and keeps the next member. It returns false if the text has no whole member any more.
func (a *answer) readMember() bool {
	a.scan.Reset(&a.text, a.place)

	// The last member is an object or an array, of which an earlier search may have read a part, or nothing.
	if a.unread {
		if !a.scan.Skip() {
			return false
		}
		a.place, a.unread = a.scan.Place(), false
	}

	name, more, _ := a.scan.Member(len(a.members) == 0)
	if !more {
		return false
	}

	m := member{name: a.keepName(name)}
	first := a.scan.Peek()
	m.from = a.scan.Place()

	// Skip an object or an array only when a later member is wanted.
	a.unread = first == '{' || first == '['
	if !a.unread {
		if !a.scan.Skip() {
			return false
		}

		m.to = a.scan.Place()
		m.ended = m.to

		// The end of a number shows only in the byte behind it.
		if first != '"' {
			m.ended++
		}
	}

	a.place = a.scan.Place()
	a.members = append(a.members, m)
	return true
}

// keepName returns a copy of a name, in nameRoom as long as that has room.
func (a *answer) keepName(name []byte) []byte {
	if a.named+len(name) > len(a.nameRoom) {
		return bytes.Clone(name)
	}
	kept := a.nameRoom[a.named : a.named+len(name)]
	a.named += copy(kept, name)
	return kept
}

// value gives s the values at the end of paths, which begin at the value of a member, and returns false
// at the end of the search.
func (a *answer) value(s *search, m *member, paths []path, fits textTest) bool {
	// An object or an array is read anew by each search that leads into it.
	if m.to == 0 {
		a.scan.Reset(&a.text, m.from)
		return s.value(paths, fits)
	}

	// A search with a smaller bound must not see bytes that a search with a larger bound has read.
	if m.ended > a.text.max {
		return false
	}

	if !m.parsed {
		raw := a.text.between(m.from, m.to)
		if raw == nil {
			return false
		}

		m.parsed = true
		m.text, m.legal = jsonscan.TextOf(raw)
	}

	// Malformed JSON ends every search.
	return m.legal && s.scalar(paths, m.text, fits)
}

// searchRest walks through the members after the first mostMembers.
func (a *answer) searchRest(s *search, paths []path, fits textTest) {
	a.scan.Reset(&a.text, a.place)

	// The value of the last kept member may be unread.
	if a.unread && !a.scan.Skip() {
		return
	}
	s.members(paths, false, fits)
}

// A runeReader reads the runes of a text from its beginning on.
type runeReader struct {
	text  window
	piece []byte // the text that was read, but not returned yet
	off   int    // place of piece
}

// ReadRune implements [io.RuneReader].
func (r *runeReader) ReadRune() (c rune, size int, err error) {
	// A character may be cut at the end of a piece. Asking for the byte behind the piece makes From return more.
	for !utf8.FullRune(r.piece) && r.text.From(r.off+len(r.piece)) != nil {
		r.piece = r.text.From(r.off)
	}
	if len(r.piece) == 0 {
		return 0, 0, io.EOF
	}
	c, size = utf8.DecodeRune(r.piece)
	r.piece, r.off = r.piece[size:], r.off+size
	return c, size, nil
}

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
		m.split = (*events).readEventLine
	case "application/x-ndjson", "application/jsonl", "application/stream+json":
		m.split = (*events).readJSONLine
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
	split func(m *events) // reads the line that has ended. It is nil if the body is one document.
	cost  int

	line    buffer // the line that has begun, or the whole document
	data    buffer // the data of the event that has begun
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

// Write implements [throttle.Meter]. It reads each line of a stream as soon as the line ends. Its error
// is errLong, for a document of more than mostEvent bytes.
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

// readEventLine reads a line of an event stream. An empty line ends an event. Lines of other fields than
// data are ignored.
func (m *events) readEventLine() {
	line := m.line.bytes
	data, isData := bytes.CutPrefix(line, []byte("data:"))
	switch {
	case m.line.spoilt: // take a line that is too long for data, so that the event is skipped
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

// endEvent reads the cost in the data of the event that has ended, unless the event has no data or too
// much.
func (m *events) endEvent() {
	if m.hasData && !m.data.spoilt {
		m.take(m.data.bytes)
	}
	m.hasData = false
	m.data.reset()
}

// readJSONLine reads the cost in a line of a stream of JSON, unless the line is empty or was too long.
func (m *events) readJSONLine() {
	if len(m.line.bytes) > 0 {
		m.take(m.line.bytes)
	}
}

// take reads the cost in data. If data states a cost it replaces the cost so far.
func (m *events) take(data []byte) {
	if cost := m.read(data); cost >= 0 {
		m.cost = cost
	}
}

// Cost implements [throttle.Meter]. It first reads what the end of the body has left: the last event of a
// stream, or the whole document.
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

// Amount is a number in a JSON body: the cost of the request ([Amount.Cost]), or the budget's
// remaining quota ([Amount.Left]). Fractions are rounded to be safe: a cost up, a quota down. A
// negative quota counts as 0.
type Amount struct {
	// Fields are the paths of the amount, as in [Codes].
	Fields []string

	// Per is how long the remaining quota holds. Only Left needs it: without Per, Left says
	// nothing.
	Per time.Duration

	// Max is how many bytes of the body are read. Defaults to 64 KB, the maximum.
	Max int64
}

// Cost is a [Reader] that takes the amount for the cost of the request.
func (a Amount) Cost(resp *http.Response) throttle.Answer {
	n, ok := a.read(resp)
	if !ok || n < 0 {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithCost(int(math.Ceil(n)))
}

// Meter is a [throttle.Policy.Meter] for bodies that state the cost late: streams, of which the
// last event with the amount counts, and JSON longer than Max. See [Events].
func (a Amount) Meter(resp *http.Response) throttle.Meter {
	return Events(resp, func(data []byte) int {
		if n, ok := a.In(data); ok {
			return n
		}
		return -1
	})
}

// In returns the amount in a JSON text, rounded up. ok is false if the text has no amount, or a negative
// amount. The text may be truncated.
func (a Amount) In(data []byte) (n int, ok bool) {
	// Nearly all events of a stream are without the amount, and a search for the name is cheaper than for the path.
	if !slices.ContainsFunc(a.Fields, func(field string) bool { return mayHave(data, field) }) {
		return 0, false
	}

	text, ok := firstFieldOf(jsonscan.Of(data), a.Fields, isAmount)
	amount, _ := amountOf(text)
	if !ok || amount < 0 {
		return 0, false
	}
	return int(math.Ceil(amount)), true
}

// mayHave reports whether a JSON text may have a field: whether the last name of the field's path
// is in the text. A text with escapes may have every name, and an array every number.
func mayHave(data []byte, field string) bool {
	name := field[strings.LastIndexByte(field, '.')+1:]
	return name == "*" || digits(name) || bytes.Contains(data, []byte(name)) || bytes.IndexByte(data, '\\') >= 0
}

// Left is a [Reader] that takes the amount for the budget's remaining quota. It ignores a 401 and
// an answer out of a cache.
func (a Amount) Left(resp *http.Response) throttle.Answer {
	// Without Per the quota would have no end.
	if a.Per <= 0 || !speaks(resp) {
		return throttle.Answer{}
	}
	n, ok := a.read(resp)
	if !ok {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithLeft(throttle.Quota{Left: max(0, int(n)), Reset: min(a.Per, throttle.MaxPenalty)})
}

// read reads the amount out of an answer.
func (a Amount) read(resp *http.Response) (n float64, ok bool) {
	text, ok := firstField(resp, a.Fields, atMost(a.Max, mostBytes), isAmount)
	if !ok {
		return 0, false
	}
	return amountOf(text)
}

// amountOf reads a text as an amount, which may be negative. ok is false if the text is no number, or a
// number above [math.MaxInt32].
func amountOf(text string) (n float64, ok bool) {
	text, negative := strings.CutPrefix(text, "-")
	n, ok = number(text)
	if negative {
		n = -n
	}
	return n, ok && n <= math.MaxInt32
}

// isAmount reports whether a text is an amount.
func isAmount(text string) bool {
	_, ok := amountOf(text)
	return ok
}

// mostBytes is how much of any body is looked at.
const mostBytes = 64 << 10

// look returns a reader of at most the first most bytes of an answer's body, or of no bytes if the body
// must not be read. The package documentation has the rule.
func look(resp *http.Response, most int64) io.Reader {
	if !mayLook(resp, most) {
		return http.NoBody
	}
	return peek.Reader(resp, most)
}

// mayLook reports whether the first most bytes of an answer's body may be looked at: see the package
// documentation. It may wait a tenth of a second for the first bytes of a body without a length.
func mayLook(resp *http.Response, most int64) bool {
	if isJSON(resp) {
		return true
	}

	media := mediaType(resp)
	switch {
	// A look at a stream could wait for bytes that come much later.
	case media == "text/event-stream" || media == "application/stream+json" || strings.HasPrefix(media, "multipart/"):
		return false
	case resp.StatusCode >= 400:
		return true
	case resp.ContentLength >= 0 && resp.ContentLength <= most:
		return true
	case document(media):
		return true

	// A body of a known length is longer than most here.
	case resp.ContentLength >= 0:
		return false

	// Of bodies without a length only those of a success are looked at, except streams.
	case resp.StatusCode < 200 || resp.StatusCode >= 300 || streams(media):
		return false
	}

	// The body may be JSON all the same: some platforms send it as a text or without a type, and gzip removes the length.
	return beginsAsJSON(peek.Begins(resp))
}

// streams reports whether a media type is for streams of messages, or for files that are no
// text.
func streams(media string) bool {
	kind, subtype, _ := strings.Cut(media, "/")
	switch kind {
	case "image", "audio", "video", "font":
		return true
	}

	switch subtype {
	case "x-ndjson", "ndjson", "jsonl", "x-jsonlines", "json-seq", "octet-stream", "zip", "gzip", "pdf":
		return true
	}
	return strings.HasPrefix(subtype, "grpc")
}

// beginsAsJSON reports whether a text may be the beginning of a JSON object or array.
func beginsAsJSON(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// isJSON reports whether the Content-Type is application/json, the type of nearly all answers. Each
// row of a table asks for it, so the test must be cheap.
func isJSON(resp *http.Response) bool {
	parameters, ok := strings.CutPrefix(firstOf(resp.Header, "Content-Type"), "application/json")
	return ok && (parameters == "" || parameters[0] == ';')
}

// document reports whether a media type is JSON, HTML or XML. A caller needs the whole of such a body, so
// a wait for its beginning delays no caller.
func document(media string) bool {
	_, subtype, _ := strings.Cut(media, "/")
	if i := strings.LastIndexByte(subtype, '+'); i >= 0 {
		subtype = subtype[i+1:]
	}
	return subtype == "json" || subtype == "html" || subtype == "xml"
}

// atMost returns the number of bytes to look at: most, or byDefault if most is not set, and never more
// than mostBytes.
func atMost(most, byDefault int64) int64 {
	if most <= 0 {
		most = byDefault
	}
	return min(most, mostBytes)
}

// PeekBody returns the next max bytes of an answer's body, or all of a shorter body, and leaves the
// body as it was: the body's reader sees every byte and the same error at the end. Use it in a
// [throttle.Policy.Answer] that looks for a code in the body. Several policies may look at the same
// answer, concurrently. The bytes must not be changed.
//
// A body in gzip or deflate, because the caller or its SDK has set Accept-Encoding, is decoded: max
// counts decoded bytes. Of the encoded body at most 64 KB more than max are read ahead, and its
// reader gets it unchanged. Other codings (br, zstd, several at once) cannot be decoded: then
// [throttle.Config.Observe] gets an [throttle.EventIllegible], once for each policy that tried.
//
// Both results are nil if there is no body to read: in an answer without a body, in an undecodable
// body, and in an answer that switches protocols (101), whose body is a connection.
//
// PeekBody waits until max bytes, the end or an error have come, but all looks at one answer
// together wait at most a second, and do not see bytes that come later. A streaming answer is held
// back for that second, so look only at answers that may be refusals, by their status, length or
// type.
//
// A read error belongs to the body's reader, which gets it after the bytes before it. PeekBody
// returns the error only if there are no bytes.
func PeekBody(resp *http.Response, max int64) ([]byte, error) { return peek.Body(resp, max) }

// SentAt estimates when an answer was sent, by the clock of this machine. It is usually now. For an
// answer that a [throttle.Transport] passes to a policy's functions more than a second after the
// request was handed on, it is the answer's Date plus the second that Date may cut off, if that
// moment lies between the two. A Date outside that interval comes from a wrong clock and is
// ignored.
//
// The Close of an [throttle.Answer] counts from SentAt: the Transport deducts the time since. So
// refusals that were decided together, and arrive one by one, end together.
func SentAt(resp *http.Response) time.Time { return peek.SentAt(resp) }

// Took returns the time between handing on the request and its answer, for the functions of a
// policy that a [throttle.Transport] calls. Below a second it is 0.
func Took(resp *http.Response) time.Duration { return peek.Took(resp) }
