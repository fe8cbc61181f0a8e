package feedback

import (
	"bytes"
	"io"
	"net/http"
	"strings"

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
