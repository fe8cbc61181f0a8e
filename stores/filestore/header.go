package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

const (
	magic      = "throttle budgets"
	format     = 1    // of this file, its records and rows. Each form has a number of its own.
	headerSize = 4096 // the first record begins here
	bootMost   = 64
	endedAt    = 2048 // where the byte is that says that the generation has ended
	hasEnded   = 'x'
)

// A header is the beginning of a file. It does not change.
//
//	16 bytes  magic
//	 4 bytes  format
//	 8 bytes  generation
//	 1 byte   length of the boot's identity
//	64 bytes  the boot's identity
//	 4 bytes  checksum of all that
type header struct {
	generation int64
	boot       string
}

const headerUsed = len(magic) + 4 + 8 + 1 + bootMost

// append appends the header.
func (h *header) append(b []byte) []byte {
	from := len(b)
	b = append(b, make([]byte, headerSize)...)
	p := b[from:]
	copy(p, magic)
	binary.LittleEndian.PutUint32(p[16:], format)
	binary.LittleEndian.PutUint64(p[20:], uint64(h.generation))
	p[28] = byte(copy(p[29:29+bootMost], h.boot))
	binary.LittleEndian.PutUint32(p[headerUsed:], crc32.Checksum(p[:headerUsed], castagnoli))
	return b
}

// readHeader returns the header that a file begins with.
func readHeader(f *os.File) (header, error) {
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	return parseHeader(head[:n])
}

// parseHeader returns the header that b begins with.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerSize || !bytes.HasPrefix(b, []byte(magic)) {
		return header{}, fmt.Errorf("%w: it does not begin as a file of budgets does", errDamaged)
	}
	if v := binary.LittleEndian.Uint32(b[16:]); v != format {
		return header{}, &FormatError{Found: int(v)}
	}
	if binary.LittleEndian.Uint32(b[headerUsed:]) != crc32.Checksum(b[:headerUsed], castagnoli) || b[28] > bootMost {
		return header{}, fmt.Errorf("%w: its first bytes were changed", errDamaged)
	}

	return header{int64(binary.LittleEndian.Uint64(b[20:])), string(b[29 : 29+b[28]])}, nil
}

// errDamaged says that no store has written a file as it is.
var errDamaged = errors.New("the file is damaged")

// A FormatError says that a different version of this package wrote the budgets. Nothing is booked,
// because neither version would know the other version's bookings. Stop all programs that use the
// directory, remove the files in it, and start programs of one version.
type FormatError struct {
	Found int // the form that the file has
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("it was written by another version of the program (form %d, this program knows form %d): "+
		"use one version, or another directory", e.Found, format)
}
