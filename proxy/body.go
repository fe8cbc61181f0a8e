package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// A body is read ahead up to mostAhead, in aheadTime at most.
const (
	mostAhead = 1 << 20
	aheadTime = 10 * time.Second
)

// expected is how long a body may say that it is for memory to be there before it comes.
const expected = 64 << 10

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
		r.Body = &upload{Reader: r.Body, body: r.Body, answer: w, left: r.ContentLength}
		return free, nil
	}
	size := int64(mostAhead) // of a body of unknown length
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	if !b.take(size) {
		return free, newProblem(http.StatusServiceUnavailable, "the bodies of all requests are too large for this proxy's memory").because(bodiesFull).after(soon)
	}
	free = func() { b.used.Add(-size) }
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(b.within)) // where it is not supported the caller's context has to do
	read := bytes.NewBuffer(make([]byte, 0, min(size, expected)+bytes.MinRead))
	_, err := read.ReadFrom(io.LimitReader(r.Body, mostAhead))
	begin := read.Bytes()
	if err == nil { // else nothing more is read
		_ = deadline.SetReadDeadline(time.Time{})
	}
	b.used.Add(int64(len(begin)) - size)
	size = int64(len(begin))
	switch {
	case err == nil:
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

// A wholeBody is a body that was read to its end.
type wholeBody struct{ *bytes.Reader }

// Close implements [io.Closer].
func (wholeBody) Close() error { return nil }
