package feedback

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/peek"
)

// mostBytes is how much of any body is looked at.
const mostBytes = 64 << 10

// look returns a reader of at most max bytes of an answer's body, or of no bytes if the body must
// not be read. The package documentation has the rule.
func look(resp *http.Response, max int64) io.Reader {
	if !looked(resp, max) {
		return http.NoBody
	}
	return peek.Reader(resp, max)
}

// looked reports whether the first max bytes of an answer's body may be looked at.
func looked(resp *http.Response, max int64) bool {
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
	case resp.ContentLength >= 0 && resp.ContentLength <= max:
		return true
	case document(media):
		return true
	case resp.ContentLength >= 0 || resp.StatusCode < 200 || resp.StatusCode >= 300 || streams(media):
		return false
	}

	// Platforms send JSON as a text or without a type, and gzip takes the length away.
	return beginsAsJSON(peek.Begins(resp))
}

// streams reports whether a media type is one of streams of messages, or of files that
// nobody takes for a text.
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

// document reports whether a media type is JSON, HTML or XML, which are useless in part: waiting
// for a part of such a body delays no caller.
func document(media string) bool {
	_, subtype, _ := strings.Cut(media, "/")
	if i := strings.LastIndexByte(subtype, '+'); i >= 0 {
		subtype = subtype[i+1:]
	}
	return subtype == "json" || subtype == "html" || subtype == "xml"
}

// atMost returns max, or the default if it is not set, within mostBytes.
func atMost(max, byDefault int64) int64 {
	if max <= 0 {
		max = byDefault
	}
	return min(max, mostBytes)
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
