package throttle

import (
	"io"
	"net/http"
)

// A watchedBody tells the journey when the answer is over: at its end, at an
// error, or when it is closed.
type watchedBody struct {
	io.ReadCloser
	journey *journey
}

// watch wraps the answer's body. The body of an upgraded connection stays an
// io.ReadWriteCloser and is over when it is closed.
func (j *journey) watch(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody {
		j.end()
		return
	}
	if w, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &upgradedBody{w, j}
		return
	}
	j.body = watchedBody{resp.Body, j}
	resp.Body = &j.body
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.journey.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	err := b.ReadCloser.Close()
	b.journey.end()
	return err
}

type upgradedBody struct {
	io.ReadWriteCloser
	journey *journey
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	err := b.ReadWriteCloser.Close()
	b.journey.end()
	return err
}
