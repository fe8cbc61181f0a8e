package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// A body is read ahead up to mostAhead, in aheadTime at most.
const (
	mostAhead = 1 << 20
	aheadTime = 10 * time.Second
)

// readAhead reads a body before its request waits, because net/http does not notice that a
// caller has left while there is more to read of its body (golang/go#23262). It leaves two kinds
// of bodies alone: a caller that expects 100 Continue sends its body when the request has its start, and HTTP/2
// notices by itself.
func readAhead(w http.ResponseWriter, r *http.Request) *problem {
	if r.Body == nil || r.Body == http.NoBody || r.ProtoMajor != 1 || strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		return nil
	}
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(aheadTime)) // where it is not supported the caller's context has to do
	begin, err := io.ReadAll(io.LimitReader(r.Body, mostAhead))
	_ = deadline.SetReadDeadline(time.Time{})
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "the body of the request came too slowly")
	default:
		return newProblem(http.StatusBadRequest, "the body of the request could not be read")
	}
	if len(begin) == mostAhead {
		r.Body = &joinedBody{io.MultiReader(bytes.NewReader(begin), r.Body), r.Body}
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(begin))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(begin)), nil }
	return nil
}

// A joinedBody is a body whose begin was read.
type joinedBody struct {
	io.Reader
	io.Closer
}
