package throttle

import (
	"io"
	"net/http"
)

// A watchedBody tells the journey when the answer is over: at its end, at an
// error, or when it is closed.
type responseBody struct {
	io.ReadCloser
	rt *roundTrip
}

// watch wraps the answer's body. The body of an upgraded connection stays an
// io.ReadWriteCloser and is over when it is closed.
func (r *roundTrip) wrapBody(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody {
		r.end()
		return
	}
	if w, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &upgradedBody{w, r}
		return
	}
	r.respBody = responseBody{resp.Body, r}
	resp.Body = &r.respBody
}

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.rt.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.rt.end()
	return err
}

type upgradedBody struct {
	io.ReadWriteCloser
	rt *roundTrip
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	err := b.ReadWriteCloser.Close()
	b.rt.end()
	return err
}
