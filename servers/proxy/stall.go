package proxy

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

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
