// Package peek looks at what an answer says: at the beginning of its body, which it leaves as if nobody had
// looked, and at when it was sent.
package peek

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// Body implements feedback.PeekBody, which documents it: it returns the next maxBytes of the body, decoded, and
// leaves the body as it was. Both results are nil if maxBytes is 0 or less, or nothing of the body can be seen.
func Body(resp *http.Response, maxBytes int64) ([]byte, error) {
	if maxBytes <= 0 {
		return nil, nil
	}
	switch body, coding := peekable(resp); {
	case body == nil:
		return nil, nil
	case coding == "":
		return body.peek(maxBytes)
	default:
		return body.decoded(coding).peek(maxBytes)
	}
}

// Reader returns a reader of the bytes that [Body] would return, for callers that
// may know enough before all of them have come: a Read waits for its first byte only.
// After the bytes the reader returns io.EOF, the error of the body, or
// io.ErrNoProgress if the rest does not come within a second. The reader is of no use
// any more once the body itself is read or closed.
func Reader(resp *http.Response, maxBytes int64) io.Reader {
	if maxBytes <= 0 {
		return http.NoBody
	}
	switch body, coding := peekable(resp); {
	case body == nil:
		return http.NoBody
	case coding == "":
		return io.LimitReader(&peekReader{body: body}, maxBytes)
	default:
		return io.LimitReader(&decodedReader{d: body.decoded(coding), want: maxBytes}, maxBytes)
	}
}

// A Text is the text of a body, decoded if the body is compressed, for repeated looks: each byte
// has an offset from the beginning of the body. The zero Text is empty.
type Text struct {
	body    *peekedBody
	decoded *decodedBody // nil: the body is plain
}

// TextOf returns the text of an answer's body, and waits for no byte of it. The text is empty if
// nothing of the body can be seen: see peekable.
func TextOf(resp *http.Response) Text {
	body, coding := peekable(resp)
	if body == nil || coding == "" {
		return Text{body: body}
	}
	return Text{body, body.decoded(coding)}
}

// From returns bytes of the text from the offset off on, and none from the offset end on: at least
// one byte, after a wait for it if need be. It returns nil if there is none, or the body's reader has
// begun. The bytes must not be changed, and stay as they are.
func (t Text) From(off, end int) []byte {
	if t.body == nil || off >= end {
		return nil
	}
	var text []byte
	if t.decoded != nil {
		text = t.decoded.from(off, int64(end))
	} else {
		text = t.body.from(off, end-off)
	}
	return text[:min(len(text), end-off)]
}

// Begins returns the bytes of the first read of an answer's body, decoded if the body is
// compressed, or nil if no byte comes within a tenth of a second, or the body cannot be read. It is
// for answers that may be streams.
func Begins(resp *http.Response) []byte {
	text := TextOf(resp)
	if text.body == nil {
		return nil
	}

	text.body.hasten(true)
	defer text.body.hasten(false)
	return text.From(0, maxScan)
}

// Kept returns a value of type T that is kept beside the body of an answer for all looks at it, and
// the text of the body. The first call makes a zero T. Kept returns nil if the body cannot be read, if
// the body's reader has begun, or if values of two other types are kept already.
func Kept[T any](resp *http.Response) (*T, Text) {
	text := TextOf(resp)
	body := text.body
	if body == nil {
		return nil, text
	}

	body.mu.Lock()
	defer body.mu.Unlock()

	if body.begun {
		return nil, text
	}

	// A place belongs to the first type that asks for it.
	for i := range body.kept {
		if body.kept[i] == nil {
			body.kept[i] = new(T)
		}
		if kept, ok := body.kept[i].(*T); ok {
			return kept, text
		}
	}

	return nil, text
}

// peekable puts a peekedBody around the answer's body, unless there is one, and returns it
// with the body's coding, or "" if the body is plain. It returns nil if nothing of the body can
// be seen: there is none, it is the connection of a protocol that was switched to, or nobody
// here can read its coding, which Refused then tells.
func peekable(resp *http.Response) (body *peekedBody, coding string) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, ""
	}

	body, ok := resp.Body.(*peekedBody)
	if !ok {
		body = newPeekedBody(resp)
		resp.Body = body
	}

	coding, known := Coding(resp)
	if !known {
		body.refuse(coding)
		return nil, ""
	}

	return body, coding
}

// Coding returns the content coding of an answer's body, or "" if the body is plain. known is true for
// a plain body and for the codings that [Decoded] can decode.
func Coding(resp *http.Response) (coding string, known bool) {
	if fields := resp.Header["Content-Encoding"]; len(fields) > 0 && !resp.Uncompressed {
		coding = strings.ToLower(strings.TrimSpace(strings.Join(fields, ",")))
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

// Refused returns the coding of an answer at which a function of this package could not look
// because nobody here can read the coding. It returns "" if there was no such look since the last
// call of Refused.
func Refused(resp *http.Response) (coding string) {
	if body, ok := resp.Body.(*peekedBody); ok {
		return body.takeRefused()
	}
	return ""
}

// SlowAnswer is how long an answer must have taken before its Date says how old the answer is: a Date
// has whole seconds.
const SlowAnswer = time.Second

// handedKey is the context key of the time.Time at which a request was handed to the base or, if that was later,
// at which it could start.
type handedKey struct{}

// WithHanded returns the context of a request whose answer took longer than SlowAnswer. handed is when the
// request was handed on: see handedKey.
func WithHanded(ctx context.Context, handed time.Time) context.Context {
	return context.WithValue(ctx, handedKey{}, handed)
}

// handedAt returns when the request of an answer was handed on: see handedKey. tookLong is false, and
// the moment unknown, unless the answer took longer than SlowAnswer.
func handedAt(resp *http.Response) (handed time.Time, tookLong bool) {
	if resp == nil || resp.Request == nil {
		return time.Time{}, false
	}
	handed, tookLong = resp.Request.Context().Value(handedKey{}).(time.Time)
	return handed, tookLong
}

// SentAt implements feedback.SentAt, which documents it: it estimates when an answer was sent, by the answer's Date if
// the answer took longer than SlowAnswer. Otherwise it returns the present time.
func SentAt(resp *http.Response) time.Time {
	now := time.Now()
	handed, tookLong := handedAt(resp)
	if !tookLong {
		return now
	}

	// A Date has whole seconds, so the answer was sent up to a second later. A Date outside of the time
	// that the answer took comes from a wrong clock, and is ignored.
	date, err := http.ParseTime(resp.Header.Get("Date"))
	sent := date.Add(time.Second)
	whileAwaited := !sent.Before(handed) && sent.Before(now)
	if err == nil && whileAwaited {
		return sent
	}
	return now
}

// Took implements feedback.Took, which documents it: it returns how long the answer took, or 0 if that was less than
// SlowAnswer.
func Took(resp *http.Response) time.Duration {
	handed, tookLong := handedAt(resp)
	if !tookLong {
		return 0
	}
	return time.Since(handed)
}
