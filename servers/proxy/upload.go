package proxy

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// An upload is a body of HTTP/1 of which something is still to come when its request waits.
//
// The answer may begin before the upload has ended. Then its connection must end with it: else
// net/http would read what is left of the body before it sends the answer, which the caller may
// never send, and which the upstream may want.
type upload struct {
	io.Reader
	body   io.ReadCloser
	answer http.ResponseWriter
	expect bool        // the caller sends nothing before a read asks for the body: Expect: 100-continue
	left   int64       // how many bytes are still to come; negative: unknown
	begun  atomic.Bool // something was read
	ended  atomic.Bool // all have come
}

// Read implements [io.Reader].
func (u *upload) Read(p []byte) (int, error) {
	u.begun.Store(true)
	n, err := u.Reader.Read(p)
	if u.left > 0 {
		u.left -= int64(n)
	}
	if u.left == 0 || err == io.EOF {
		u.ended.Store(true)
	}
	return n, err
}

// Close implements [io.Closer]. Nobody reads the body from then on. What is still to come is awaited, but not for long.
func (u *upload) Close() error {
	if !u.ended.Load() {
		awaitLittle(u.answer)
	}
	if !u.begun.Load() {
		return nil // net/http waits when it has sent the answer
	}
	return u.body.Close()
}

// finish closes the upload when its answer has been written, because net/http/httputil closes no body.
func (u *upload) finish() {
	if !u.ended.Load() && (u.begun.Load() || !u.expect) {
		awaitLittle(u.answer)
		linger(u.answer, u.body)
	}
	_ = u.Close()
}

// isOver reports whether all has come; nil: nothing was to come.
func (u *upload) isOver() bool { return u == nil || u.ended.Load() }

// restTime is how long the rest of a body is awaited that nobody reads.
const restTime = time.Second

// restBytes is how much of such a rest is read.
const restBytes = 64 << 20

// awaitLittle has net/http wait for restTime at most for the rest of a body that nobody reads.
func awaitLittle(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime))
}

// linger sends the answer, and then reads what the caller still sends of a body that nobody wants, for restTime at
// most, after awaitLittle. A connection that is closed with bytes unread is reset, and a reset can overtake the answer. The server
// of net/http reads 256 KiB of the rest, waits for half a second if the caller did not want the connection closed, and closes.
func linger(w http.ResponseWriter, body io.Reader) {
	if err := http.NewResponseController(w).Flush(); err == nil {
		_, _ = io.CopyN(io.Discard, body, restBytes)
	}
}
