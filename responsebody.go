package throttle

import "io"

// A responseBody tells its ender when the response is over: at its end, at an error,
// or when it is closed.
type responseBody struct {
	io.ReadCloser
	of ender
}

// An upgradedBody is the body of an upgraded connection.
type upgradedBody struct {
	io.ReadWriteCloser
	of ender
}

// An ender is told, perhaps more than once, that a response is over.
type ender interface{ end() }

// Read implements io.Reader.
func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.of.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.of.end()
	return err
}

// Close implements io.Closer.
func (b *upgradedBody) Close() error {
	err := b.ReadWriteCloser.Close()
	b.of.end()
	return err
}
