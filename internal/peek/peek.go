// Package peek looks at the beginning of an answer's body and leaves the body as if
// nobody had looked.
package peek

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Body is throttle.PeekBody: its documentation says what it promises.
func Body(resp *http.Response, max int64) ([]byte, error) {
	if max <= 0 {
		return nil, nil
	}
	switch body, coding := peekable(resp); {
	case body == nil:
		return nil, nil
	case coding == "":
		return body.peek(max)
	default:
		return body.decoded(coding).peek(max)
	}
}

// Reader returns a reader of the bytes that [Body] would return, for callers that
// may know enough before all of them have come: it waits for no byte that is not
// asked of it. Behind them is io.EOF, or the error that came before; where a second
// was not enough, it is io.ErrNoProgress. The reader is of no use any more once the
// body itself is read or closed.
func Reader(resp *http.Response, max int64) io.Reader {
	if max <= 0 {
		return http.NoBody
	}
	switch body, coding := peekable(resp); {
	case body == nil:
		return http.NoBody
	case coding == "":
		return io.LimitReader(&peekReader{body: body}, max)
	default:
		return io.LimitReader(&decodedReader{d: body.decoded(coding), most: max}, max)
	}
}

// peekable puts a peekedBody around the answer's body, unless there is one, and
// returns how it is coded; "" if it is plain. It returns nil if there is no body of
// which anything can be seen.
func peekable(resp *http.Response) (body *peekedBody, coding string) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, ""
	}
	body, ok := resp.Body.(*peekedBody)
	if !ok {
		body = &peekedBody{ReadCloser: resp.Body, closeOnce: sync.OnceValue(resp.Body.Close), until: time.Now().Add(lookTime)}
		resp.Body = body
	}
	coding, known := Coding(resp)
	if !known {
		body.refuse(coding)
		return nil, ""
	}
	return body, coding
}

// Coding returns how an answer's body is coded, "" if it is plain, and whether [Decoded] knows the
// coding.
func Coding(resp *http.Response) (coding string, known bool) {
	if !resp.Uncompressed {
		coding = strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ",")))
	}
	switch coding {
	case "", "identity":
		return "", true
	case "gzip", "x-gzip", "deflate":
		return coding, true
	}
	return coding, false
}

// Decoded returns a reader of the text of a body in a coding that [Coding] knows, and that is not
// plain. It fails if the body does not begin as the coding does.
func Decoded(coding string, body io.Reader) (io.Reader, error) {
	if coding == "deflate" {
		return openDeflate(body)
	}
	return openGzip(body)
}

// Refused returns the coding in which [Body] or [Reader] was to look at the answer,
// in vain, since Refused was called last; "" if there is none.
func Refused(resp *http.Response) (coding string) {
	if body, ok := resp.Body.(*peekedBody); ok {
		return body.takeRefused()
	}
	return ""
}
