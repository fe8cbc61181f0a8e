package peek

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"sync"
)

// A decodedBody is what a compressed body says, as far as it was looked at. It reads
// copies of the body's bytes, which stay there.
type decodedBody struct {
	body *peekedBody
	open func(io.Reader) (io.Reader, error)

	mu   sync.Mutex
	most int64 // the most of the text that was wanted
	raw  *io.LimitedReader
	text io.Reader
	seen []byte // came out of text
	err  error  // came after seen
}

// slack is how much more of a compressed body may be read than what is to be seen of
// it: decoders give nothing out before they have 32 KB of text or the end, and a
// hostile body can go on for ever without a byte of it.
const slack = 64 << 10

// decoded returns the view of a body that is coded so.
func (b *peekedBody) decoded(coding string) *decodedBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == nil {
		b.text = &decodedBody{body: b, open: openGzip}
		if coding == "deflate" {
			b.text.open = openDeflate
		}
	}
	return b.text
}

func openGzip(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

// openDeflate reads what is called deflate: a zlib stream, as RFC 9110 has it, or what
// is inside of one, as some servers do.
func openDeflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil {
		return nil, err
	}
	if method := head[0] & 0x0f; method == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}

// fetch decodes until there is more than the first have bytes, of most that are
// wanted, and reports whether there is. What ended it is in d.err.
func (d *decodedBody) fetch(have int, most int64) bool {
	if d.body.isBegun() { // what was not seen is gone
		return len(d.seen) > have
	}
	if most > d.most {
		d.widen(most)
	}
	for empty := 0; len(d.seen) <= have && d.err == nil && empty < emptyMost; empty++ {
		p := make([]byte, min(max(most-int64(len(d.seen)), 1), readMost))
		var n int
		n, d.err = d.text.Read(p)
		d.seen = append(d.seen, p[:n]...)
	}
	return len(d.seen) > have
}

// widen lets more of the body be read. A decoder that has met the old bound, or an
// error that may have been one, begins again.
func (d *decodedBody) widen(most int64) {
	switch {
	case d.text != nil && d.err == nil:
		d.raw.N += most - d.most
	case d.err != io.EOF:
		d.raw = &io.LimitedReader{R: &peekReader{body: d.body}, N: most + slack}
		d.seen = nil
		d.text, d.err = d.open(d.raw)
	}
	d.most = most
}

// peek is [peekedBody.peek] of the text.
func (d *decodedBody) peek(most int64) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.body.isBegun() { // and its first bytes are gone
		return nil, nil
	}
	for int64(len(d.seen)) < most && d.fetch(len(d.seen), most) {
	}
	if len(d.seen) == 0 && d.err != io.EOF && d.err != io.ErrNoProgress {
		return nil, d.err
	}
	n := min(most, int64(len(d.seen)))
	return d.seen[:n:n], nil
}

// A decodedReader reads the text from its beginning on.
type decodedReader struct {
	d    *decodedBody
	most int64 // is wanted
	off  int
}

// Read implements io.Reader.
func (r *decodedReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	switch {
	case r.d.fetch(r.off, r.most):
		n := copy(p, r.d.seen[r.off:])
		r.off += n
		return n, nil
	case r.d.err != nil:
		return 0, r.d.err
	}
	return 0, io.ErrNoProgress
}
