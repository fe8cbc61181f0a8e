package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/inbound"
)

// A body is read ahead up to mostAhead bytes, in at most aheadTime.
const (
	mostAhead = 1 << 20
	aheadTime = 10 * time.Second
)

// bodies limits the memory of bodies that are read ahead.
type bodies struct {
	most   int64 // bytes of all bodies together
	used   atomic.Int64
	within time.Duration // time limit of one body
}

// take reserves n bytes, or returns false if they exceed the limit.
func (b *bodies) take(n int64) bool {
	used := b.used.Add(n)
	if used > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

// readAhead reads a body, or the first mostAhead bytes of a longer body, before its request waits: policies may read it,
// and net/http cannot notice that a caller of HTTP/1 has left while unread body remains (golang/go#23262). The request
// then has a body with the same bytes. Two kinds of bodies are not read ahead:
//   - A caller that expects 100 Continue sends its body only after the request has a start.
//   - A body of HTTP/2 without a length may go on while the answer comes, and a body of mostAhead bytes or more is too
//     long for a policy.
//
// free gives back the memory of the body. It is to be called after the request, and also after a problem.
func (b *bodies) readAhead(w http.ResponseWriter, r *http.Request) (free func(), _ *problem) {
	free = func() {}
	expects := r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
	isShort := r.ContentLength > 0 && r.ContentLength < mostAhead
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return free, nil
	case r.ProtoMajor != 1 && (expects || !isShort):
		return free, nil
	case expects:
		r.Body = &upload{Reader: r.Body, body: r.Body, answer: w, expect: true, left: r.ContentLength}
		return free, nil
	}

	// A server without deadlines cannot limit the time of the body.
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(b.within))
	begin, taken, err := b.read(r.Body, r.ContentLength)
	free = func() { b.used.Add(-taken) }

	// After an error nothing more is read, so the deadline may stay.
	if err != nil {
		return free, problemOfBody(err)
	}
	_ = deadline.SetReadDeadline(time.Time{})

	// The body may be longer than the buffer: send the beginning from memory, and stream the rest.
	if len(begin) == mostAhead {
		r.Body = &upload{Reader: io.MultiReader(bytes.NewReader(begin), r.Body), body: r.Body, answer: w, left: r.ContentLength}
		return free, nil
	}

	r.Body = wholeBody{bytes.NewReader(begin)}
	r.GetBody = func() (io.ReadCloser, error) { return wholeBody{bytes.NewReader(begin)}, nil }
	return free, nil
}

// problemOfBody returns the answer to a request whose body could not be read.
func problemOfBody(err error) *problem {
	switch {
	case errors.Is(err, errBodiesFull):
		return newProblem(http.StatusServiceUnavailable, "the bodies of all requests are too large for this proxy's memory").because(bodiesFull).after(inbound.Soon)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "the body of the request came too slowly")
	}
	return newProblem(http.StatusBadRequest, "the body of the request could not be read")
}

// firstRead is the first size of a body's buffer.
const firstRead = 512

// errBodiesFull reports that all bodies together exceed the memory limit.
var errBodiesFull = errors.New("proxy: the bodies of all requests are too large")

// read reads a body to its end, or up to mostAhead bytes, into a buffer that grows. It reserves memory only when bytes
// have arrived, so that a caller cannot reserve memory by a large Content-Length. length is negative if unknown.
// taken is the reserved memory, also with an error: errBodiesFull, or the error of the body.
func (b *bodies) read(body io.Reader, length int64) (begin []byte, taken int64, err error) {
	expected := int64(mostAhead) // number of bytes to read at most
	if length >= 0 {
		expected = min(expected, length)
	}

	// The largest buffer has room for one byte more, so that the last read finds the end of the body.
	largest := min(expected+1, mostAhead)
	begin = make([]byte, 0, min(firstRead, largest))
	for {
		n, err := body.Read(begin[len(begin):cap(begin)])
		begin = begin[:len(begin)+n]

		// Reserve the memory of the first buffer when its first bytes have arrived.
		if size := min(int64(cap(begin)), expected); n > 0 && taken < size {
			if !b.take(size - taken) {
				return begin, taken, errBodiesFull
			}
			taken = size
		}

		if err == io.EOF {
			begin, taken = b.shrink(begin, taken)
			return begin, taken, nil
		}
		if err != nil || int64(len(begin)) == largest {
			return begin, taken, err
		}

		// If the buffer is full, reserve the memory of a larger buffer before it is allocated.
		if len(begin) == cap(begin) {
			size := min(2*int64(cap(begin)), expected)
			if !b.take(size - taken) {
				return begin, taken, errBodiesFull
			}

			taken = size
			begin = append(make([]byte, 0, min(size+1, largest)), begin...)
		}
	}
}

// shrink returns a body that was read to its end, and the memory that the body needs: the rest of what was taken is
// given back.
func (b *bodies) shrink(body []byte, taken int64) ([]byte, int64) {
	// The buffer may be much too large for a body of unknown length.
	if cap(body)-len(body) > firstRead {
		body = bytes.Clone(body)
	}

	needed := int64(len(body))
	b.used.Add(needed - taken)
	return body, needed
}

// A wholeBody is a body that was read to its end.
type wholeBody struct{ *bytes.Reader }

// Close implements [io.Closer].
func (wholeBody) Close() error { return nil }

// An upload is an HTTP/1 body that is not read to its end when its request waits.
//
// The answer may begin before the upload has ended. The connection must then close after the answer.
// Otherwise net/http would read the rest of the body before it sends the answer, while the caller may wait
// for the answer and the upstream may still want the body.
type upload struct {
	io.Reader
	body   io.ReadCloser
	answer http.ResponseWriter
	expect bool        // the caller sends the body only after the first read: Expect: 100-continue
	left   int64       // remaining bytes, negative if unknown
	begun  atomic.Bool // a read has happened
	ended  atomic.Bool // the body has arrived completely
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

// Close implements [io.Closer]. It bounds the wait for the rest of the body
// by restTime.
func (u *upload) Close() error {
	if !u.ended.Load() {
		awaitLittle(u.answer)
	}
	if !u.begun.Load() {
		return nil // net/http reads the rest after the answer
	}
	return u.body.Close()
}

// finish closes the upload after its answer was written, because net/http/httputil does not. It first reads the rest of
// the body by linger, unless the caller still expects 100 Continue and so has sent nothing.
func (u *upload) finish() {
	hasArrived := u.ended.Load()
	mayHaveBegun := u.begun.Load() || !u.expect
	if mayHaveBegun && !hasArrived {
		awaitLittle(u.answer)
		linger(u.answer, u.body)
	}
	_ = u.Close()
}

// isOver reports whether the body has arrived completely. A nil upload has.
func (u *upload) isOver() bool { return u == nil || u.ended.Load() }

// restTime is how long the rest of an unwanted body is awaited.
const restTime = time.Second

// restBytes is how much of an unwanted body is read.
const restBytes = 64 << 20

// awaitLittle makes net/http wait at most restTime for the rest of an unwanted body.
func awaitLittle(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(restTime))
}

// linger sends the answer, then reads up to restBytes of an unwanted body, until the deadline that awaitLittle has
// set before. Closing a connection with unread bytes resets the connection, and a reset can overtake the
// answer. The server of net/http alone reads only 256 KiB, waits half a second, and closes.
func linger(w http.ResponseWriter, body io.Reader) {
	if err := http.NewResponseController(w).Flush(); err == nil {
		_, _ = io.CopyN(io.Discard, body, restBytes)
	}
}

// A stall limits how long a request waits for its caller in one direction. Silence of the upstream does not
// count. Methods of a nil *stall do nothing.
type stall struct {
	within time.Duration
	over   func() // ends the wait

	mu      sync.Mutex
	timer   *time.Timer
	awaited bool
	since   time.Time     // begin of the wait
	left    time.Duration // rest of within
	moved   int           // bytes since left was reset
}

// leastMoved is how many bytes reset the limit, so that a caller cannot keep a
// slot with a byte now and then.
const leastMoved = 1 << 10

// newStall returns a stall, or nil if within is negative.
func newStall(within time.Duration, over func()) *stall {
	if within < 0 {
		return nil
	}
	return &stall{within: within, over: over, left: within}
}

// begin starts the clock: the caller is awaited.
func (s *stall) begin() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.awaited, s.since = true, time.Now()
	if s.timer == nil {
		s.timer = time.AfterFunc(s.left, s.expire)
		return
	}

	// Continue with the time that is left: a trickle of bytes must not renew the limit.
	s.timer.Reset(s.left)
}

// end stops the clock: the caller has sent or taken n bytes.
func (s *stall) end(n int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.awaited = false
	s.timer.Stop()
	s.left -= time.Since(s.since)
	s.moved += n

	// A caller that has moved enough is slow but not stalled, and gets the whole time again.
	if s.moved >= leastMoved {
		s.moved, s.left = 0, s.within
	}
}

// lift removes the limit.
func (s *stall) lift() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.over = func() {}
}

// expire ends the wait if its time is over. A later wait, with time left, may have begun since the timer fired. The mutex
// is held while over runs: end waits for the mutex, so the handler does not return before over has used its ResponseWriter.
func (s *stall) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.awaited && time.Since(s.since) >= s.left {
		s.over()
	}
}

// watch limits how long a request waits for its caller: to send more of the body, and to take more of the answer.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, c *call) {
	c.sending = newStall(h.c.CallerIdle, func() {
		c.place.End(newProblem(http.StatusRequestTimeout, "the caller has stopped in the middle of its body"))
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // wakes the blocked read, for which the base would wait
	})
	c.taking = newStall(h.c.CallerIdle, func() {
		c.place.End(newProblem(http.StatusRequestTimeout, "the caller does not take its answer"))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // wakes the blocked write
	})

	// A body in memory needs no limit.
	hasBody := r.Body != nil && r.Body != http.NoBody
	if _, whole := r.Body.(wholeBody); hasBody && !whole {
		r.Body = &awaitedBody{r.Body, c}
	}
}

// An awaitedBody is a body that is not read to its end.
type awaitedBody struct {
	io.ReadCloser
	of *call
}

// Read implements [io.Reader].
func (b *awaitedBody) Read(p []byte) (n int, err error) {
	sending := b.of.sending
	sending.begin()
	defer func() { sending.end(n) }()
	return b.ReadCloser.Read(p)
}

// boundWrites limits all further writes of the answer, if callers are limited. The server resets the deadline for the
// next request.
func (h *Handler) boundWrites(w http.ResponseWriter) {
	if h.c.CallerIdle > 0 {
		// Before a write the rest of an unwanted body may be awaited, for restTime.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.c.CallerIdle + restTime))
	}
}

// answered notes that the answer has begun. From then on both sides of a gRPC stream may be silent.
func (c *call) answered(resp *http.Response) {
	if strings.HasPrefix(resp.Request.Header.Get("Content-Type"), "application/grpc") {
		c.sending.lift()
	}
}

// A boundedWriter is a hijacked connection with a time limit for each write.
type boundedWriter struct {
	net.Conn
	within time.Duration
}

// Write implements [net.Conn].
func (c *boundedWriter) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.within))
	return c.Conn.Write(p)
}

// CloseWrite closes the write side of the connection.
func (c *boundedWriter) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
