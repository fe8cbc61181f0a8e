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
)

// A body is read ahead up to mostAhead, in aheadTime at most.
const (
	mostAhead = 1 << 20
	aheadTime = 10 * time.Second
)

// bodies are the bodies that are read ahead.
type bodies struct {
	most   int64 // how many bytes all of them may have together
	used   atomic.Int64
	within time.Duration // how long one of them may take
}

// take takes n bytes; false: there are not as many.
func (b *bodies) take(n int64) bool {
	if b.used.Add(n) > b.most {
		b.used.Add(-n)
		return false
	}
	return true
}

// readAhead reads a body before its request waits, because net/http does not notice that a
// caller has left while there is more to read of its body (golang/go#23262). It leaves two kinds
// of bodies alone: a caller that expects 100 Continue sends its body when the request has its start, and HTTP/2
// notices by itself. free gives back the memory of the body, when the request is over.
func (b *bodies) readAhead(w http.ResponseWriter, r *http.Request) (free func(), _ *problem) {
	free = func() {}
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1:
		return free, nil
	case r.ProtoAtLeast(1, 1) && strings.EqualFold(r.Header.Get("Expect"), "100-continue"):
		r.Body = &upload{Reader: r.Body, body: r.Body, answer: w, expect: true, left: r.ContentLength}
		return free, nil
	}

	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(b.within)) // where it is not supported the caller's context has to do
	begin, taken, err := b.read(r.Body, r.ContentLength)
	free = func() { b.used.Add(-taken) }
	if err == nil { // else nothing more is read
		_ = deadline.SetReadDeadline(time.Time{})
	}

	switch {
	case err == nil:
	case errors.Is(err, errBodiesFull):
		return free, newProblem(http.StatusServiceUnavailable, "the bodies of all requests are too large for this proxy's memory").because(bodiesFull).after(soon)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return free, newProblem(http.StatusRequestTimeout, "the body of the request came too slowly")
	default:
		return free, newProblem(http.StatusBadRequest, "the body of the request could not be read")
	}

	if len(begin) == mostAhead {
		r.Body = &upload{Reader: io.MultiReader(bytes.NewReader(begin), r.Body), body: r.Body, answer: w, left: r.ContentLength}
		return free, nil
	}

	r.Body = wholeBody{bytes.NewReader(begin)}
	r.GetBody = func() (io.ReadCloser, error) { return wholeBody{bytes.NewReader(begin)}, nil }
	return free, nil
}

// firstRead is the memory for the first bytes of a body.
const firstRead = 512

// errBodiesFull says that there is no memory for more of a body.
var errBodiesFull = errors.New("proxy: the bodies of all requests are too large")

// read reads a body up to its end, or to mostAhead bytes. It takes memory when there is something to put into that
// memory, so that a caller takes none by saying how much will come. The length is negative if it is unknown. taken is
// how much was taken, also beside an error.
func (b *bodies) read(body io.Reader, length int64) (begin []byte, taken int64, err error) {
	whole := int64(mostAhead)
	if length >= 0 {
		whole = min(whole, length)
	}

	most := min(whole+1, mostAhead) // one more than the whole, so that the last read finds the end

	begin = make([]byte, 0, min(firstRead, most))
	for {
		n, err := body.Read(begin[len(begin):cap(begin)])
		begin = begin[:len(begin)+n]
		if have := min(int64(cap(begin)), whole); n > 0 && taken < have {
			if !b.take(have - taken) {
				return begin, taken, errBodiesFull
			}
			taken = have
		}

		switch {
		case err == io.EOF:
			if cap(begin)-len(begin) > firstRead {
				begin = bytes.Clone(begin) // a body of unknown length keeps no more than it needs
			}

			length := int64(len(begin))
			b.used.Add(length - taken)
			return begin, length, nil

		case err != nil, int64(len(begin)) == most:
			return begin, taken, err
		case len(begin) == cap(begin):
			more := min(2*int64(cap(begin)), most)
			if more = min(more, whole); !b.take(more - taken) {
				return begin, taken, errBodiesFull
			}

			taken = more
			begin = append(make([]byte, 0, min(more+1, most)), begin...)
		}
	}
}

// A wholeBody is a body that was read to its end.
type wholeBody struct{ *bytes.Reader }

// Close implements [io.Closer].
func (wholeBody) Close() error { return nil }

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

// A stall bounds how long a request waits for its caller, in one direction. Only the time counts in which the caller
// is awaited, not the silence of an upstream. Methods of a nil *stall do nothing.
type stall struct {
	within time.Duration
	over   func() // ends the wait

	mu      sync.Mutex
	timer   *time.Timer
	awaited bool
	since   time.Time     // when the wait began
	left    time.Duration // of within
	moved   int           // bytes since left was within
}

// leastMoved is how much a caller must send or take within the time, so that a byte now and then is not enough.
const leastMoved = 1 << 10

// newStall returns a stall, or nil if there is no bound.
func newStall(within time.Duration, over func()) *stall {
	if within < 0 {
		return nil
	}
	return &stall{within: within, over: over, left: within}
}

// begin notes that the caller is awaited from now on.
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
	s.timer.Reset(s.left)
}

// end notes that the caller is awaited no more, and has sent or taken n bytes.
func (s *stall) end(n int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.awaited = false
	s.timer.Stop()
	s.left -= time.Since(s.since)
	if s.moved += n; s.moved >= leastMoved {
		s.moved, s.left = 0, s.within
	}
}

// lift removes the bound.
func (s *stall) lift() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	s.over = func() {}
}

// expire ends the wait, if there still is one. The mutex is held meanwhile, so that the handler does not return.
func (s *stall) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.awaited {
		s.over()
	}
}

// watch bounds how long a request waits for its caller.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, c *call) {
	c.sending = newStall(h.c.CallerIdle, func() {
		c.place.refuse(newProblem(http.StatusRequestTimeout, "the caller has stopped in the middle of its body"))
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // ends the read that waits, for which the base would wait
	})
	c.taking = newStall(h.c.CallerIdle, func() {
		c.place.refuse(newProblem(http.StatusRequestTimeout, "the caller does not take its answer"))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) // ends the write that waits
	})

	if _, whole := r.Body.(wholeBody); !whole && r.Body != nil && r.Body != http.NoBody {
		r.Body = &awaitedBody{r.Body, c}
	}
}

// An awaitedBody is a body of which something is still to come.
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

// boundWrites bounds how long what is written from now on may wait for the caller, beside the rest of a body that
// is awaited before. The server lifts the bound for the next request.
func (h *Handler) boundWrites(w http.ResponseWriter) {
	if h.c.CallerIdle > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.c.CallerIdle + restTime))
	}
}

// answered notes that the answer has begun. From then on both sides of a gRPC stream may be silent.
func (c *call) answered(resp *http.Response) {
	if strings.HasPrefix(resp.Request.Header.Get("Content-Type"), "application/grpc") {
		c.sending.lift()
	}
}

// A boundedWriter is a connection that a caller has taken over. Each write waits for the caller for a time at most.
type boundedWriter struct {
	net.Conn
	within time.Duration
}

// Write implements [net.Conn].
func (c *boundedWriter) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.within))
	return c.Conn.Write(p)
}

// CloseWrite tells the caller that nothing more comes.
func (c *boundedWriter) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
