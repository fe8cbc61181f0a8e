package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/cmd/throttle/internal/accesslog"
)

var base = &url.URL{Scheme: "https", Host: "api.example.com"}

// read returns what a log says, and its broken lines.
func read(t *testing.T, log io.Reader) (all []string, broken []string) {
	t.Helper()
	r, err := accesslog.NewReader(log, base)
	require.NoError(t, err)
	for {
		e, err := r.Next()
		var line *accesslog.LineError
		switch {
		case err == io.EOF:
			return all, broken
		case errors.As(err, &line):
			broken = append(broken, line.Error())
		default:
			require.NoError(t, err)
			all = append(all, e.Time.UTC().Format(time.RFC3339Nano)+" "+e.Method+" "+e.URL.String())
		}
	}
}

// TestFormats: all formats are told by their first line.
func TestFormats(t *testing.T) {
	for name, log := range map[string]string{
		"common":   `127.0.0.1 - frank [23/Nov/2026:09:00:00 +0100] "GET /v1/orders?a=1 HTTP/1.0" 200 2326`,
		"combined": `::1 - - [23/Nov/2026:08:00:00 +0000] "GET /v1/orders?a=1 HTTP/1.1" 200 2 "https://x.example.com/[a]" "curl/8 \"quoted\""`,
		"proxy":    `10.0.0.1 - - [23/Nov/2026:08:00:00 +0000] "GET https://api.example.com/v1/orders?a=1 HTTP/1.1" 200 2`,
		"csv":      "time,method,url\n2026-11-23T08:00:00Z,get,https://api.example.com/v1/orders?a=1\n",
		"quoted":   "\ufeff\"2026-11-23 08:00:00\", GET, \"/v1/orders?a=1\", 200",
		"seconds":  "1795420800,GET,/v1/orders?a=1",
		"millis":   "1795420800000,GET,/v1/orders?a=1\r\n\r\n",
	} {
		all, broken := read(t, strings.NewReader(log))
		require.Empty(t, broken, name)
		require.Equal(t, []string{"2026-11-23T08:00:00Z GET https://api.example.com/v1/orders?a=1"}, all, name)
	}
}

// TestBrokenLines are told by their numbers, and the rest is read. What they hold is not
// told.
func TestBrokenLines(t *testing.T) {
	log := strings.Join([]string{
		`127.0.0.1 - - [23/Nov/2026:08:00:00 +0000] "GET /a HTTP/1.1" 200 1`,
		`secret`,
		`127.0.0.1 - - [yesterday] "GET /secret HTTP/1.1" 200 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:01 +0000] "secret" 400 1`,
		``,
		`127.0.0.1 - - [23/Nov/2026:08:00:01 +0000] "\x16\x03 secret" 400 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:01 +0000] "GET http://[secret HTTP/1.1" 400 1`,
		strings.Repeat("secret", 200_000),
		`127.0.0.1 - - [23/Nov/2026:08:00:02 +0000] "GET /b HTTP/1.1" 200 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:02 +0000] "CONNECT secret.example.com:443 HTTP/1.1" 200 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:02 +0000] "GET javascript:secret HTTP/1.1" 400 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:02 +0000] "GET ftp://secret.example.com/ HTTP/1.1" 400 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:02 +0000] "GET secret HTTP/1.1" 400 1`,
		`127.0.0.1 - - [23/Nov/2026:08:00:02 +0000] "GET //secret/c HTTP/1.1" 200 1`,
	}, "\n")
	all, broken := read(t, strings.NewReader(log))
	require.Equal(t, []string{"2026-11-23T08:00:00Z GET https://api.example.com/a", "2026-11-23T08:00:02Z GET https://api.example.com/b", "2026-11-23T08:00:02Z GET https://api.example.com//secret/c"}, all)
	require.Equal(t, []string{
		"line 2: there is no time in brackets",
		"line 3: the time is not as in [23/Nov/2026:08:00:00 +0000]",
		`line 4: there is no request as in "GET /v1/orders HTTP/1.1"`,
		"line 6: the method is none",
		notURL(7),
		"line 8: it is longer than a megabyte",
		"line 10: CONNECT opens a tunnel: the log does not have the requests that go through it",
		notURL(11), notURL(12), notURL(13),
	}, broken)
	_, broken = read(t, strings.NewReader("1,GET\nnow,GET,/\n"))
	require.Equal(t, []string{
		"line 1: there are no three columns, of time, method and URL",
		"line 2: the time is not as in 2026-11-23T08:00:00Z, and no seconds since 1970",
	}, broken)
}

func notURL(line int) string {
	return fmt.Sprintf("line %d: the URL is neither one of http or https nor a path", line)
}

// TestWholeSeconds: a CSV has whole seconds until a line has a part of one.
func TestWholeSeconds(t *testing.T) {
	for log, want := range map[string][]bool{
		"2026-11-23T08:00:00Z,GET,/\n2026-11-23 08:00:00,GET,/\n1795420800,GET,/":     {true, true, true},
		"2026-11-23T08:00:00.000Z,GET,/\n2026-11-23T08:00:01Z,GET,/":                  {false, false},
		"1795420800.5,GET,/\n1795420801,GET,/":                                        {false, false},
		"2026-11-23T08:00:00Z,GET,/\n1795420800000,GET,/\n2026-11-23T08:00:01Z,GET,/": {true, false, false},
		"Mon, 23 Nov 2026 08:00:00 GMT,GET,/":                                         {},
		`"Mon, 23 Nov 2026 08:00:00 GMT",GET,/`:                                       {true},
	} {
		r, err := accesslog.NewReader(strings.NewReader(log), base)
		require.NoError(t, err)
		whole := []bool{}
		for {
			e, err := r.Next()
			if err == io.EOF {
				break
			}
			if err == nil {
				whole = append(whole, e.Whole)
			}
		}
		require.Equal(t, want, whole, log)
	}
}

// TestGzip: a packed log is unpacked; a cut one is an error.
func TestGzip(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte("1795420800,GET,/a\n"))
	require.NoError(t, w.Close())
	all, _ := read(t, bytes.NewReader(packed.Bytes()))
	require.Len(t, all, 1)
	r, err := accesslog.NewReader(bytes.NewReader(packed.Bytes()[:packed.Len()-9]), base)
	require.NoError(t, err)
	for err == nil {
		_, err = r.Next()
	}
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestSorter: entries come in the order of their times; those of a whole second are spread.
func TestSorter(t *testing.T) {
	begin := time.Unix(1_795_420_800, 0)
	s := accesslog.NewSorter(10*time.Second, 1000)
	var order []int
	var times []time.Duration
	do := func(e accesslog.Entry) {
		order, times = append(order, e.Line), append(times, e.Time.Sub(begin))
	}
	for i, at := range []int{0, 5, 3, 3, 20, 4, 12} {
		s.Add(accesslog.Entry{Line: i, Time: begin.Add(time.Duration(at) * time.Second), Whole: true}, do)
	}
	s.Flush(do)
	require.Equal(t, []int{0, 2, 3, 1, 5, 6, 4}, order)
	const ms = time.Millisecond
	require.Equal(t, []time.Duration{0, 3000 * ms, 3500 * ms, 5000 * ms, 5000 * ms, 12000 * ms, 20000 * ms}, times)
	require.Equal(t, 1, s.Late)

	// What is spread does not end behind an entry that comes later in the same second.
	s = accesslog.NewSorter(time.Minute, 1000)
	times = nil
	s.Add(accesslog.Entry{Line: 0, Time: begin, Whole: true}, do)
	s.Add(accesslog.Entry{Line: 1, Time: begin, Whole: true}, do)
	s.Add(accesslog.Entry{Line: 2, Time: begin.Add(100 * ms)}, do)
	s.Flush(do)
	require.Equal(t, []time.Duration{0, 500 * ms, 500 * ms}, times)

	s = accesslog.NewSorter(time.Hour, 2)
	order = nil
	for i := range 5 {
		s.Add(accesslog.Entry{Line: i, Time: begin.Add(time.Duration(i) * time.Second)}, do)
	}
	require.Equal(t, []int{0, 1, 2}, order, "memory is bounded")
}

// FuzzReader: no log brings it down, and each line is one entry, one mistake, or nothing.
func FuzzReader(f *testing.F) {
	f.Add("1795420800,GET,/a\n\"")
	f.Add(`127.0.0.1 - - [23/Nov/2026:08:00:00 +0000] "GET /a HTTP/1.1" 200 1`)
	f.Fuzz(func(t *testing.T, log string) {
		r, err := accesslog.NewReader(strings.NewReader(log), base)
		if err != nil {
			return
		}
		lines := strings.Count(log, "\n") + 1
		for n := 0; ; n++ {
			e, err := r.Next()
			var line *accesslog.LineError
			if err != nil && !errors.As(err, &line) {
				return
			}
			if n > lines && !strings.HasPrefix(log, "\x1f\x8b") {
				t.Fatalf("%d lines are %d", lines, n)
			}
			if err == nil && (e.URL.Host == "" || e.URL.Opaque != "" || e.Method == "" || e.Time.IsZero()) {
				t.Fatalf("%+v", e)
			}
		}
	})
}
