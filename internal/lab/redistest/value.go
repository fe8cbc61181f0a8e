package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReadValue reads one value of the Redis protocol, of version 2 or 3, and
// returns its bytes as they came.
func ReadValue(r *bufio.Reader) ([]byte, error) {
	var raw []byte

	// A value may announce others, which follow it.
	for left := 1; left > 0; left-- {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}

		raw = append(raw, line...)
		size, err := sizeOf(line)
		if err != nil {
			return nil, err
		}

		switch line[0] {
		case '$', '=', '!':
			if size < 0 {
				continue // a null
			}

			text := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(r, text); err != nil {
				return nil, err
			}

			raw = append(raw, text...)

		case '*', '~', '>':
			left += max(0, size)
		case '%':
			left += 2 * size
		}
	}

	return raw, nil
}

// sizeOf returns the number in the first line of a value that has parts, or 0 for
// values that have none.
func sizeOf(line []byte) (int, error) {
	if !bytes.ContainsRune([]byte("$=!*~>%"), rune(line[0])) {
		return 0, nil
	}
	size, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return 0, fmt.Errorf("redistest: not the Redis protocol: %q", line)
	}
	return size, nil
}

// pushed reports whether a value is no reply but came by itself.
func pushed(raw []byte) bool { return raw[0] == '>' }

// commandName returns the name of a command, in lower case.
func commandName(raw []byte) string {
	lines := bytes.SplitN(raw, []byte("\r\n"), 4) // *3, $7, its name, the rest
	if len(lines) < 4 {
		return ""
	}
	return strings.ToLower(string(lines[2]))
}
