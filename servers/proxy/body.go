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
