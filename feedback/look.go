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

// look returns a reader of an answer's body, of at most max bytes; of none if it
// must not be looked at. The package documentation has the rule.
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

// isJSON reports whether an answer calls itself JSON in the words of nearly all. Each of many rows asks
// that, so the question must be cheap.
func isJSON(resp *http.Response) bool {
	parameters, ok := strings.CutPrefix(firstOf(resp.Header, "Content-Type"), "application/json")
	return ok && (parameters == "" || parameters[0] == ';')
}

// document reports whether a media type is JSON, HTML or XML, of which nobody
// can use one half. So waiting for a part of it delays no caller.
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

// PeekBody returns the next max bytes of an answer's body, or all of a shorter one,
// and leaves the body as it was: its reader sees every byte and the same error at the
// end. It is for a [throttle.Policy.Answer] that must look for a code in the body. Several
// policies may look at the same answer. The bytes must not be changed.
//
// A body in gzip or deflate, because the caller or its SDK has set Accept-Encoding,
// is decoded first: max counts decoded bytes. Of the body itself at most 64 KB more
// than that are read ahead, and its reader gets it as it came. Any other coding (br,
// zstd, several at once) cannot be read: then [throttle.Config.Observe] gets an [throttle.EventIllegible],
// once for each policy that tried.
//
// Both results are nil if there is nothing to see: in an answer without a body, in
// one that cannot be decoded, and in one that switches protocols (101), whose body is
// a connection.
//
// PeekBody waits until max bytes, the end or an error have come. All looks at one
// answer together wait for a second at most, and do not see what comes later. An
// answer that streams is held up for so long, so look only at answers that can be a
// refusal, by their status, length or type.
//
// An error while reading belongs to the body's reader, which gets it after the
// bytes that came before it. PeekBody returns it only if there are no bytes.
func PeekBody(resp *http.Response, max int64) ([]byte, error) { return peek.Body(resp, max) }

// SentAt estimates when an answer was sent, by the clock of this machine. Usually
// that is now. It is earlier for an answer that a [throttle.Transport] shows to the functions
// of a policy more than a second after its request was handed on: then the answer's
// Date counts, plus the second that Date may cut off, if that lies between the two.
// Any other Date comes from another clock and is ignored.
//
// The Close of an [throttle.Answer] counts from then: the Transport takes the time that has passed
// since off it. So refusals that were decided together and come
// late, one by one, all end together.
func SentAt(resp *http.Response) time.Time { return peek.SentAt(resp) }

// Took returns how long an answer took from when its request was handed on, for the functions of a
// policy that a [throttle.Transport] shows the answer to; 0 if that was less than a second.
func Took(resp *http.Response) time.Duration { return peek.Took(resp) }
