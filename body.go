package throttle

import (
	"io"
	"net/http"
	"sync"
)

// A releasing body calls done once when nobody needs the response's context any
// more: at its end, at an error, or when it is closed.
type releasingBody struct {
	io.ReadCloser
	done func()
	once sync.Once
}

// release wraps the answer's body. The body of an upgraded connection stays an
// io.ReadWriteCloser and is released when it is closed.
func release(resp *http.Response, done func()) io.ReadCloser {
	if resp.Body == nil || resp.Body == http.NoBody {
		done()
		return resp.Body
	}
	b := &releasingBody{ReadCloser: resp.Body, done: done}
	if w, ok := resp.Body.(io.ReadWriteCloser); ok {
		return &upgradedBody{ReadWriteCloser: w, releasing: b}
	}
	return b
}

func (b *releasingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.once.Do(b.done)
	}
	return n, err
}

func (b *releasingBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.done)
	return err
}

type upgradedBody struct {
	io.ReadWriteCloser
	releasing *releasingBody
}

func (b *upgradedBody) Close() error { return b.releasing.Close() }
