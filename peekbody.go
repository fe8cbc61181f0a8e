package throttle

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// PeekBody returns the next max bytes of an answer's body, or all of a shorter
// one, and leaves the body as if nobody had looked: the reader sees every byte
// and the same error at the end. It is for a [Policy.Penalty] that must look
// for a code in the body, and several may look at the same answer. The bytes
// must not be changed.
//
// There is nothing to see, so that both results are nil, in an answer without
// a body, in one that is still compressed, and in one that switches protocols
// (101), whose body is a connection.
//
// PeekBody waits until max bytes, the end or an error have come. An answer
// that streams may let it wait for long: look only at answers that can be a
// refusal, by their status, length or type, or use [PeekReader].
//
// An error while reading belongs to the body's reader, who gets it after the
// bytes that came before it. PeekBody returns it only if there are no bytes.
func PeekBody(resp *http.Response, max int64) ([]byte, error) {
	if max <= 0 || !legible(resp) {
		return nil, nil
	}
	return peekable(resp).peek(max)
}

// PeekReader returns a reader of the bytes that [PeekBody] would return, for
// whoever may know enough before all of them have come: it waits for no byte
// that is not asked of it. Behind them is io.EOF, or the error that came before.
// It is of no use any more once the body itself is read or closed.
func PeekReader(resp *http.Response, max int64) io.Reader {
	if max <= 0 || !legible(resp) {
		return http.NoBody
	}
	return io.LimitReader(&peekReader{body: peekable(resp)}, max)
}

// peekable puts a peekedBody around the answer's body, unless there is one.
func peekable(resp *http.Response) *peekedBody {
	body, ok := resp.Body.(*peekedBody)
	if !ok {
		body = &peekedBody{ReadCloser: resp.Body, closeOnce: sync.OnceValue(resp.Body.Close)}
		resp.Body = body
	}
	return body
}

// legible reports whether there is a body, of plain bytes of a message.
func legible(resp *http.Response) bool {
	if resp.Body == nil || resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return false
	}
	coding := resp.Header.Get("Content-Encoding")
	return coding == "" || resp.Uncompressed || strings.EqualFold(coding, "identity")
}

// A peekedBody is a body of which some bytes were read ahead.
type peekedBody struct {
	io.ReadCloser
	closeOnce func() error

	mu    sync.Mutex // a body may be closed while it is read
	ahead []byte     // read from the body, but not by its reader
	err   error      // came after ahead, io.EOF too; the reader gets it once
}

func (b *peekedBody) peek(max int64) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if want := max - int64(len(b.ahead)); want > 0 && b.err == nil {
		more, err := io.ReadAll(io.LimitReader(b.ReadCloser, want))
		if err == nil && int64(len(more)) < want {
			err = io.EOF
		}
		b.ahead, b.err = append(b.ahead, more...), err
	}
	if len(b.ahead) == 0 && b.err != io.EOF {
		return nil, b.err
	}
	n := min(max, int64(len(b.ahead)))
	return b.ahead[:n:n], nil
}

// peekAt is one read of what is behind the first off bytes, which were peeked at
// before.
func (b *peekedBody) peekAt(p []byte, off int) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if off < len(b.ahead) {
		return copy(p, b.ahead[off:]), nil
	}
	if b.err == nil {
		n, b.err = b.ReadCloser.Read(p)
		b.ahead = append(b.ahead, p[:n]...)
	}
	if n > 0 {
		return n, nil
	}
	return 0, b.err
}

// A peekReader reads a body from its next byte on, and leaves it there.
type peekReader struct {
	body *peekedBody
	off  int
}

// Read implements io.Reader.
func (r *peekReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.body.peekAt(p, r.off)
	r.off += n
	return n, err
}

// Read implements io.Reader: first what was read ahead.
func (b *peekedBody) Read(p []byte) (int, error) {
	if n, err, ok := b.readAhead(p); ok {
		return n, err
	}
	return b.ReadCloser.Read(p)
}

// readAhead does not hold the lock while the body itself is read, which may
// take long.
func (b *peekedBody) readAhead(p []byte) (n int, err error, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.ahead) > 0:
		n = copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil, true
	case b.err != nil && len(p) > 0:
		err, b.err = b.err, nil
		return 0, err, true
	}
	return 0, nil, b.err != nil
}

// Close implements io.Closer. Nothing is read ahead of a closed body: what a
// read returns then is up to the body.
func (b *peekedBody) Close() error {
	err := b.closeOnce()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead, b.err = nil, nil
	return err
}
