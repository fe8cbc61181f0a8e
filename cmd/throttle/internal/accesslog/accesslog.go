// Package accesslog reads the logs of servers and proxies: the Common and Combined Log Formats,
// which is what nginx writes if nobody tells it otherwise, and CSV of time, method and URL.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An Entry is one request of a log.
type Entry struct {
	Time   time.Time
	Whole  bool // the log has had whole seconds only
	Method string
	URL    *url.URL // absolute
	Line   int      // of the log, from 1
}

// A LineError is a line that cannot be read. The lines after it can.
type LineError struct {
	Line int
	Text string // what is wrong; it quotes nothing, because lines have tokens in them
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// longestLine is how long a line may be; memory does not grow with the log.
const longestLine = 1 << 20

// A Reader reads a log.
type Reader struct {
	in   *bufio.Reader
	base *url.URL
	line int
	csv  bool // as the first line with a time was
	any  bool // there was one
	fine bool // a line had a part of a second
}

// NewReader returns a reader of a log, which may be packed with gzip. Base is the URL of
// requests whose line has a path only, as those of servers have, nil if all have hosts.
func NewReader(log io.Reader, base *url.URL) (*Reader, error) {
	in := bufio.NewReaderSize(log, 1<<16)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unpacked, 1<<16)
	}
	return &Reader{in: in, base: base}, nil
}

// Next returns the next request. Its errors are io.EOF, a [LineError], after which it can
// be called again, and those of the log.
func (r *Reader) Next() (Entry, error) {
	for {
		text, err := r.readLine()
		if err != nil {
			return Entry{}, err
		}
		if r.line == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		if !r.any && isHeader(text) {
			continue
		}

		e, err := r.parse(text)
		if err != nil {
			return Entry{}, &LineError{r.line, err.Error()}
		}

		e.Line = r.line
		return e, nil
	}
}

// readLine reads a line, without its end.
func (r *Reader) readLine() (string, error) {
	var long []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if len(long) <= longestLine {
			long = append(long, part...)
		}

		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(long) > 0, err == nil:
		default:
			return "", err
		}

		r.line++
		if len(long) > longestLine {
			return "", &LineError{r.line, "it is longer than a megabyte"}
		}

		return strings.TrimRight(string(long), "\r\n"), nil
	}
}

// isHeader reports whether a line names the columns of CSV.
func isHeader(text string) bool {
	first, _, ok := strings.Cut(text, ",")
	first = strings.ToLower(strings.Trim(first, `" `))
	return ok && (first == "time" || first == "timestamp" || first == "date")
}

// parse parses a line.
func (r *Reader) parse(text string) (e Entry, err error) {
	if !r.any {
		// A Common Log line has its time in brackets, before its first quote.
		quote, bracket := strings.IndexByte(text, '"'), strings.IndexByte(text, '[')
		r.csv = bracket < 0 || quote >= 0 && quote < bracket
	}

	var method, target string
	if r.csv {
		e.Time, e.Whole, method, target, err = parseCSV(text)
	} else {
		e.Time, method, target, err = parseCommon(text)
		e.Whole = true
	}

	if err != nil {
		return e, err
	}

	r.any, r.fine = true, r.fine || !e.Whole
	e.Whole = !r.fine
	e.Method = method
	if !isMethod(method) {
		return e, errors.New("the method is none")
	}
	if method == http.MethodConnect {
		return e, errors.New("CONNECT opens a tunnel: the log does not have the requests that go through it")
	}

	e.URL, err = r.parseURL(target)
	return e, err
}

// parseURL parses the target of a request: a URL, or a path below the base.
func (r *Reader) parseURL(target string) (*url.URL, error) {
	target, _, _ = strings.Cut(target, "#")
	u, err := url.ParseRequestURI(target)
	switch {
	case err != nil, u.Opaque != "", u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the URL is neither one of http or https nor a path")
	case u.Host != "":
	case r.base == nil:
		return nil, errors.New("the URL has no host, and none was named: say --url")
	default:
		u.Scheme, u.Host = r.base.Scheme, r.base.Host
	}
	return u, nil
}

// isMethod reports whether a method is made of letters, as those of HTTP are.
func isMethod(s string) bool {
	for _, c := range s {
		if (c < 'A' || c > 'Z') && c != '-' {
			return false
		}
	}
	return s != ""
}

// commonTime is the time of the Common Log Format.
const commonTime = "02/Jan/2006:15:04:05 -0700"

// parseCommon parses `host ident user [time] "METHOD target HTTP/1.1" status bytes …`.
func parseCommon(text string) (at time.Time, method, target string, err error) {
	_, rest, ok := strings.Cut(text, "[")
	stamp, rest, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return at, "", "", errors.New("there is no time in brackets")
	}
	if at, err = time.Parse(commonTime, stamp); err != nil {
		return at, "", "", errors.New("the time is not as in [23/Nov/2026:08:00:00 +0000]")
	}

	_, rest, ok = strings.Cut(rest, `"`)
	request, _, closed := strings.Cut(rest, `"`)
	words := strings.Fields(request)
	if !ok || !closed || len(words) < 2 {
		return at, "", "", errors.New(`there is no request as in "GET /v1/orders HTTP/1.1"`)
	}

	return at, words[0], words[1], nil
}

// parseCSV parses `time,method,URL`; more columns are ignored.
func parseCSV(text string) (at time.Time, whole bool, method, target string, err error) {
	c := csv.NewReader(strings.NewReader(text))
	c.FieldsPerRecord, c.TrimLeadingSpace = -1, true
	fields, err := c.Read()
	if err != nil || len(fields) < 3 {
		return at, false, "", "", errors.New("there are no three columns, of time, method and URL")
	}
	if at, whole, err = parseTime(strings.TrimSpace(fields[0])); err != nil {
		return at, false, "", "", err
	}
	return at, whole, strings.ToUpper(strings.TrimSpace(fields[1])), strings.TrimSpace(fields[2]), nil
}

// parseTime parses a time of a CSV, and reports whether it is written as a whole second.
func parseTime(s string) (at time.Time, whole bool, err error) {
	whole = !strings.Contains(s, ".")
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, http.TimeFormat} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, whole, nil
		}
	}

	const milli = 100_000_000_000 // seconds of the year 5138; milliseconds of 1973
	if n, err := strconv.ParseFloat(s, 64); err == nil && n > 0 && n < 1e15 {
		if n >= milli {
			n, whole = n/1000, false
		}
		return time.UnixMicro(int64(n * 1e6)).UTC(), whole, nil
	}

	return at, false, errors.New("the time is not as in 2026-11-23T08:00:00Z, and no seconds since 1970")
}
