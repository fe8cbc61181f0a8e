// Package accesslog parses access logs of servers and proxies: the Common and
// Combined Log Formats, nginx' default, and CSV with time, method and URL.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"container/heap"
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

// Entry is one request of a log.
type Entry struct {
	Time   time.Time
	Whole  bool // the log has only whole seconds until now
	Method string
	URL    *url.URL // absolute
	Line   int      // of the log, from 1
}

// LineError reports an unreadable line. Reading can continue with the next
// line.
type LineError struct {
	Line int
	Text string // the mistake, without a quotation: lines may hold tokens
}

// Error implements error.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Text) }

// longestLine bounds a line, so that memory does not grow with the log.
const longestLine = 1 << 20

// Reader parses a log. It is not safe for concurrent use.
type Reader struct {
	in   *bufio.Reader
	base *url.URL
	line int
	csv  bool // the log is CSV, which the first line with a time decides
	any  bool // a line with a time was read
	fine bool // a line with fractions of a second was read
}

// NewReader returns a reader of a log, plain or gzip. base completes lines with
// a path only, as servers log them. It may be nil if all lines have hosts. The error
// says that the log begins as gzip does, but has no complete gzip header.
func NewReader(log io.Reader, base *url.URL) (*Reader, error) {
	in := bufio.NewReaderSize(log, 1<<16)

	// Recognize gzip by its first two bytes: a log from stdin has no name.
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(unpacked, 1<<16)
	}
	return &Reader{in: in, base: base}, nil
}

// Next returns the next request, or io.EOF at the end. It skips empty lines, lines
// that begin with #, and the titles of CSV. After a *[LineError] it can be called
// again. Further errors come from the log.
func (r *Reader) Next() (Entry, error) {
	for {
		text, err := r.readLine()
		if err != nil {
			return Entry{}, err
		}

		// The file may begin with a byte order mark.
		if r.line == 1 {
			text = strings.TrimPrefix(text, "\ufeff")
		}

		// Extended logs describe their columns in lines that begin with #.
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}

		// CSV may begin with the names of its columns.
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

// readLine reads a line, without its end. A line longer than longestLine is a *[LineError].
func (r *Reader) readLine() (string, error) {
	var long []byte
	for {
		part, err := r.in.ReadSlice('\n')

		// Read an overlong line to its end, but keep only its beginning.
		if len(long) <= longestLine {
			long = append(long, part...)
		}

		if err == bufio.ErrBufferFull {
			continue
		}

		// The last line may have no line end.
		isLine := err == nil || err == io.EOF && len(long) > 0
		if !isLine {
			return "", err
		}

		r.line++
		if len(long) > longestLine {
			return "", &LineError{r.line, "it is longer than a megabyte"}
		}

		return strings.TrimRight(string(long), "\r\n"), nil
	}
}

// isHeader reports whether a line is a CSV header.
func isHeader(text string) bool {
	first, _, ok := strings.Cut(text, ",")
	first = strings.ToLower(strings.Trim(first, `" `))
	return ok && (first == "time" || first == "timestamp" || first == "date")
}

// parse parses a line. Until a line with a time has been read, each line decides anew whether the log is CSV.
func (r *Reader) parse(text string) (e Entry, err error) {
	if !r.any {
		// Common Log lines have their time in brackets before the first quote.
		quote, bracket := strings.IndexByte(text, '"'), strings.IndexByte(text, '[')
		r.csv = bracket < 0 || quote >= 0 && quote < bracket
	}

	whole := true // the Common Log Format has no fractions of a second
	var target string
	if r.csv {
		e.Time, whole, e.Method, target, err = parseCSV(text)
	} else {
		e.Time, e.Method, target, err = parseCommon(text)
	}

	if err != nil {
		return e, err
	}

	// One fraction of a second proves that later whole seconds are exact.
	r.any, r.fine = true, r.fine || !whole
	e.Whole = !r.fine
	if !isMethod(e.Method) {
		return e, errors.New("the method is none")
	}
	if e.Method == http.MethodConnect {
		return e, errors.New("CONNECT opens a tunnel: the log does not have the requests that go through it")
	}

	e.URL, err = r.parseURL(target)
	return e, err
}

// parseURL parses a request target: a URL, or a path under base.
func (r *Reader) parseURL(target string) (*url.URL, error) {
	// A fragment is not part of a request.
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

// isMethod reports whether a method consists of capital letters and hyphens, as HTTP methods do.
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

// parseCSV parses `time,method,URL`. It ignores more columns.
func parseCSV(text string) (at time.Time, whole bool, method, target string, err error) {
	c := csv.NewReader(strings.NewReader(text))

	// A line may have more columns than three.
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

// parseTime parses a CSV time: a date with a time, or the seconds or milliseconds since 1970. whole reports that it is in
// seconds without a fraction.
func parseTime(s string) (at time.Time, whole bool, err error) {
	whole = !strings.Contains(s, ".")
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, http.TimeFormat} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, whole, nil
		}
	}

	// Numbers from this one on are milliseconds: as seconds it is the year 5138, as milliseconds 1973.
	const leastMilli = 100_000_000_000

	// Below 1e15 milliseconds the microseconds fit into an int64.
	if n, err := strconv.ParseFloat(s, 64); err == nil && n > 0 && n < 1e15 {
		if n >= leastMilli {
			n, whole = n/1000, false
		}
		return time.UnixMicro(int64(n * 1e6)).UTC(), whole, nil
	}

	return at, false, errors.New("the time is not as in 2026-11-23T08:00:00Z, and no seconds since 1970")
}

// Sorter sorts entries by time within a window, because servers log requests
// when they end. It spreads entries of one whole second evenly over that
// second. It is not safe for concurrent use.
type Sorter struct {
	Late int // entries later than the window allows; they get the time of the latest entry passed on

	window time.Duration
	most   int
	kept   kept
	newest time.Time
	last   time.Time // time of the latest entry passed on
}

// NewSorter returns a sorter with a window, which keeps at most most entries in
// memory.
func NewSorter(window time.Duration, most int) *Sorter { return &Sorter{window: window, most: most} }

// Add adds an entry. It calls do, in order of time, for the entries that are earlier than the newest by more than the window,
// and for the earliest entries if too many are kept.
func (s *Sorter) Add(e Entry, do func(Entry)) {
	// An entry of a later time is passed on already, so the order cannot be repaired.
	if e.Time.Before(s.last) {
		s.Late++
		e.Time, e.Whole = s.last, false
	}
	if e.Time.After(s.newest) {
		s.newest = e.Time
	}
	heap.Push(&s.kept, e)
	for len(s.kept) > 0 && (len(s.kept) > s.most || s.newest.Sub(s.kept[0].Time) > s.window) {
		s.release(do)
	}
}

// Flush calls do for all entries that are kept.
func (s *Sorter) Flush(do func(Entry)) {
	for len(s.kept) > 0 {
		s.release(do)
	}
}

// release removes all kept entries of the earliest time, and calls do for each. Whole seconds it spreads evenly over the second.
func (s *Sorter) release(do func(Entry)) {
	at := s.kept[0].Time

	// Take all entries of the time, because the distance between them depends on their number.
	var all []Entry
	for len(s.kept) > 0 && s.kept[0].Time.Equal(at) {
		all = append(all, heap.Pop(&s.kept).(Entry))
	}

	for i, e := range all {
		if e.Whole {
			e.Time = at.Add(time.Second * time.Duration(i) / time.Duration(len(all)))
		}
		if e.Time.Before(s.last) {
			e.Time = s.last // an entry of a second that was spread has got a later time
		}

		s.last = e.Time
		do(e)
	}
}

// kept implements heap.Interface: by time, then by line.
type kept []Entry

// Len implements heap.Interface, as the other methods do.
func (h kept) Len() int { return len(h) }
func (h kept) Less(i, j int) bool {
	return h[i].Time.Before(h[j].Time) || h[i].Time.Equal(h[j].Time) && h[i].Line < h[j].Line
}
func (h kept) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *kept) Push(x any)   { *h = append(*h, x.(Entry)) }
func (h *kept) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = Entry{}
	*h = old[:len(old)-1]
	return e
}
