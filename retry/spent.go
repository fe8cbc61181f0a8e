package retry

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// drainTime is how long the next attempt waits for the body of the answer before it, which
// go-retryablehttp reads to keep the connection. A body that takes longer is not worth a
// connection, or would take forever.
const drainTime = 100 * time.Millisecond

// A spent body is the body of an answer whose request is about to be repeated. It is closed
// drainTime after its first read.
type spent struct {
	io.ReadCloser
	drain    func() *time.Timer // begins, once, the time after which the body is closed
	deadline time.Time          // of the request with all its repeats, or zero
}

// spend makes the answer's body a spent one.
func spend(ctx context.Context, resp *http.Response) {
	body := resp.Body
	deadline, _ := ctx.Deadline()
	resp.Body = &spent{body, sync.OnceValue(func() *time.Timer {
		return time.AfterFunc(drainTime, func() { body.Close() })
	}), deadline}
}

// Read implements io.Reader.
func (s *spent) Read(p []byte) (int, error) {
	s.drain()
	return s.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (s *spent) Close() error {
	s.drain().Stop()
	return s.ReadCloser.Close()
}

// restore undoes spend: the answer turned out to be the last.
func restore(resp *http.Response) {
	if s, ok := resp.Body.(*spent); ok {
		resp.Body = s.ReadCloser
	}
}

// room returns how long the next attempt can still be waited for, if that is
// known and bounded.
func room(resp *http.Response) (d time.Duration, bounded bool) {
	if resp == nil {
		return 0, false
	}
	s, ok := resp.Body.(*spent)
	if !ok || s.deadline.IsZero() {
		return 0, false
	}
	return time.Until(s.deadline), true
}
