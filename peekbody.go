package throttle

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// PeekBody returns the next max bytes of an answer's body, or all of a shorter
// one, and leaves the body as if nobody had looked: the reader sees every byte
// and the same error at the end. It is for a [Policy.Penalty] that must look
// for a code in the body, and several may look at the same answer. The bytes
// must not be changed.
//
// A body in gzip or deflate, because the caller or its SDK has set Accept-Encoding,
// is decoded for whoever looks: max counts decoded bytes, and of the body itself at
// most 64 KB more than that are read ahead. Its reader gets it as it came. In any
// other coding (br, zstd, several at once) nobody can look: then [Config.Observe] is
// told once for each policy that wanted to, by an [Illegible].
//
// There is nothing to see, so that both results are nil, in an answer without
// a body, in one that cannot be decoded, and in one that switches protocols
// (101), whose body is a connection.
//
// PeekBody waits until max bytes, the end or an error have come, but all looks
// at one answer together no longer than a second: who is slower is taken to have
// said no more. An answer that streams is held up for so long: look only at
// answers that can be a refusal, by their status, length or type, or use
// [PeekReader].
//
// An error while reading belongs to the body's reader, who gets it after the
// bytes that came before it. PeekBody returns it only if there are no bytes.
func PeekBody(resp *http.Response, max int64) ([]byte, error) {
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

// PeekReader returns a reader of the bytes that [PeekBody] would return, for
// whoever may know enough before all of them have come: it waits for no byte
// that is not asked of it. Behind them is io.EOF, or the error that came before;
// where a second was not enough, it is io.ErrNoProgress. It is of no use any more
// once the body itself is read or closed.
func PeekReader(resp *http.Response, max int64) io.Reader {
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
	if !resp.Uncompressed {
		coding = strings.ToLower(strings.TrimSpace(strings.Join(resp.Header["Content-Encoding"], ",")))
	}
	switch coding {
	case "", "identity":
		return body, ""
	case "gzip", "x-gzip", "deflate":
		return body, coding
	}
	body.refuse(coding)
	return nil, ""
}
